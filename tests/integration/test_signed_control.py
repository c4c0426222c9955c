"""A job whose control records are signed, and somebody who may write to its control topics."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.common.kafka.control import ControlReader, ReportWriter
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    JobManagerBeat,
    Message,
    Processors,
    Refused,
    Sos,
)
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.deployment.desired_state import Deployment, Wish
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.deployment.pipeline_topic import UnsignedPipelineError
from kafka_pipeline.operations.cluster_watcher import read_status
from tests.chaos.garbage import messages
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

_job_numbers = itertools.count()

PIPELINE = "- {id: Forwarder, type: forward, to: [sink]}\n"
NEW_KEY, FORMER_KEY = "b" * 64, "a" * 64
GARBAGE = 300
FLOOD = 5_000
MOST_REJECTED = 200
"""How many lines of the log tell of rejected records, with each reason twice as seldom."""
RECORDS = 200
LOG_TIMEOUT_S = 20.0


def forged(job: Engine, incarnation: str, epoch: int) -> list[ControlRecord]:
    """Return what one without the key could write, to stop or to take over the job."""
    names, codec = job.names, Codec(job.names)
    orders: list[Message] = [
        Sos(-1, "forger"),
        Refused(0, incarnation, epoch, "go away"),
        Processors(0, incarnation, epoch, 99),
        JobManagerBeat(epoch + 1, 0, {}),
    ]
    records = [record for order in orders for record in codec.encode(order, 0)]
    records += Deployment(names).records(Wish(version=1, drains=True))
    garbage = itertools.islice(messages(Random(1), names, 1), GARBAGE)
    return [*records, *garbage]


def flood(job: Engine) -> None:
    """Write what no engine writes to each control topic, up to what the broker takes."""
    names = job.names
    topics = [names.threads_jm, names.threads_tm, names.heartbeat, names.heartbeat_events]
    topics += [names.processors("0"), names.pipeline]
    nested, huge = b"[" * 10_000, b"9" * 4_000
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("version", None), ("format", b"1")],
        [("version", b"4"), ("epoch", huge), ("sequence", b"-1"), ("sent_at", b"9" * 19)],
        [("version", b"4"), ("report", nested), ("figures", b'{"names":1,"names":2}')],
        [("version", b"4"), ("report", b'{"beat":NaN,"host":"\\ud800"}'), ("figures", b"{}")],
        [(f"{n:050}", b"x" * 50) for n in range(6_000)],
        [("\x1b[2J\u202e", b"\x1b]0;owned\x07"), ("format", huge)],
    ]
    values = [None, b"", b"sos", b"ping", b"\xff\xfe", nested, b"x" * 900_000]
    producer = Producer({"bootstrap.servers": job.config.bootstrap_servers})
    for topic in topics:
        for value in values:
            for each in headers:
                size = len(value or b"") + sum(len(n) + len(v or b"") for n, v in each)
                if size < 1_000_000:
                    producer.produce(topic, value, b"0", 0, headers=each)  # type: ignore[arg-type]
                    producer.poll(0)
        for key in (None, b"wish", b"version-1", b"../../x", b"jobmanager", b"\x1b[2J"):
            producer.produce(topic, b"{}", key, 0, timestamp=2**62)
    for number in range(FLOOD):
        producer.produce(topics[number % len(topics)], b"%d" % number, b"0", 0)
        producer.poll(0)
    assert producer.flush(60) == 0


def recorded(job: Engine) -> list[ControlRecord]:
    """Return what the daemons have signed and written so far."""
    names = job.names
    topics = [names.threads_jm, names.threads_tm, names.processors("0"), names.pipeline]
    reader = ControlReader(job.config, topics, history=2**62)
    found: list[ControlRecord] = []
    while {r.topic for r in found} != set(topics):
        found += reader.read(1)
    reader.close()
    return found


def wait_for(daemon: Daemon, said: str) -> None:
    deadline_s = time.monotonic() + LOG_TIMEOUT_S
    while said not in daemon.log_file.read_text():
        assert time.monotonic() < deadline_s, f"{daemon.name} never said: {said}"
        time.sleep(0.1)


def test_a_signed_job_is_not_disturbed_by_forged_and_repeated_records(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    name = f"signed_{os.getpid()}_{next(_job_numbers)}"
    key_file = tmp_path / "key"
    key_file.write_text(f"{FORMER_KEY}\n")
    with engine(
        tmp_path,
        bootstrap_servers,
        name,
        PIPELINE,
        tm_number=1,
        parallelism=1,
        heartbeat_interval_ms=500,
        control_key_file="key",
    ) as job:
        manager = job.start_job_manager()
        worker = job.start_task_manager(0, threads=1)
        before = job.wait_until(all_run([0]))
        assert before.job_manager.epoch is not None
        (live,) = {
            dict(record.headers)["incarnation"].decode()
            for record in recorded(job)
            if record.topic == job.names.processors("0")
        }
        writer = ReportWriter(job.config)
        writer.write([*recorded(job), *forged(job, live, before.job_manager.epoch)])
        writer.close(10)
        flood(job)
        rows = [(b"k%d" % n, b"%d" % n) for n in range(RECORDS)]
        job.write(rows)
        job.wait_until_done({job.names.sink: RECORDS})
        assert sorted(job.read(job.names.sink)) == sorted(rows)
        wait_for(manager, "repeats a change that was made before")
        for daemon in (manager, worker):
            wait_for(daemon, "not signed. Set control_key_file")
            shown = daemon.log_file.read_text()
            assert not any(each in shown for each in ("\x1b", "\x07", "\u202e"))
            assert shown.count("control message rejected") < MOST_REJECTED
        after = job.wait_until(all_run([0]))
        assert [d.exit_code for d in (manager, worker)] == [None, None]
        assert [info.status and info.status.count("restarts") for info in after.tasks] == [0]

        other = replace(job.config, control_key=ControlKey((NEW_KEY.encode(),)))
        assert any("the signature is wrong" in why for why in read_status(other).unsigned)
        with pytest.raises(UnsignedPipelineError, match="pipeline sign"):
            read_deployment(other, connected(other))
        key_file.write_text(f"{NEW_KEY}\n{FORMER_KEY}\n")
        assert "signed with a key of control_key_file" in job.run_command("sign", "--yes")
        assert read_deployment(other, connected(other)).wish == Wish(version=1)
