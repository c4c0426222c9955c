"""Rehearsals of new versions while a job runs under load, and a command that is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.operations.rehearsal.publication import read_publication
from kafka_pipeline.operations.rehearsal.shadow import shadow_name
from tests.engine import Engine, all_run, engine
from tests.steady_load import KEYS, Writer, check_counts

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = """
sinks: {{prices: prices_{job}}}
processors:
- {{id: Forwarder, type: forward, to: [Adder]}}
- {{id: Adder, type: {adder}, to: [Counter], on_error: dead_letter}}
- {{id: Counter, type: count, to: [sink]}}
- {{id: Prices, type: topology, builder: "tests.user_code.rehearsed:build",
   config: {{price: {price}}}}}
"""
ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-the-tests-1"


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A job that runs with state, in a store of a processor and in one of the DSL."""
    name = f"rehearsed_{os.getpid()}"
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    settings = {
        "heartbeat_interval_ms": 500,
        "tm_number": 1,
        "modules": "[tests.user_code.rehearsed]",
        "python_path": f"[{ROOT}]",
        "log_record_values": "true",
        "console_records": "true",
        "console_port": 0,
        "console_token_file": token,
    }
    text = PIPELINE.format(job=name, adder="sum", price=3)
    with engine(tmp_path, bootstrap_servers, name, text, **settings) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        made.wait_until(all_run([0]))
        yield made


def changed(job: Engine, folder: Path, adder: str = "sum", price: int = 3) -> Path:
    file = folder / "next.yaml"
    file.write_text(PIPELINE.format(job=job.config.job_name, adder=adder, price=price))
    return file


def command(job: Engine, *arguments: object) -> list[str]:
    words = [command_path("pipeline"), "rehearse", job.config_file, *arguments]
    return [*map(str, words)]


def rehearsed(job: Engine, pipeline: Path, code: int) -> dict[str, Any]:
    """Rehearse for a moment; return the report."""
    words = command(job, pipeline, "--for", "5 s", "--json")
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{job.logs()}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def left_topics(job: Engine) -> list[str]:
    ending = f"_{shadow_name(job.config.job_name)}"
    return [topic for topic in Admin(job.config).topics() if topic.endswith(ending)]


def shown(job: Engine) -> Any:
    """Return what the console shows of the last rehearsal."""
    (log,) = job.config_file.parent.glob("*_jobmanager.log")
    found = re.search(r"the console is served +address=(\S+)", log.read_text())
    assert found, job.logs()
    request = Request(f"{found[1]}api/rehearsal", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)["rehearsal"]


def test_rehearsals_find_what_differs_and_leave_the_job_as_it_was(
    job: Engine, tmp_path: Path
) -> None:
    prices = f"prices_{job.config.job_name}"
    with Writer(job) as writer:
        writer.go_on(40)
        same = rehearsed(job, changed(job, tmp_path), 0)
        writer.go_on(10)
        other = rehearsed(job, changed(job, tmp_path, price=4), 1)
    assert same["verdict"] == "equal"
    for output in (job.config.sink_topic, prices):
        found = same["outputs"][output]
        assert found["equal"] > 20 * KEYS
        assert not any(found[kind] for kind in ("different", "reordered", "only_old", "only_new"))
    assert same["rested_ms"] > 0
    assert same["figures"]["new"]["read"] > 0

    assert other["verdict"] == "different"
    assert not other["outputs"][job.config.sink_topic]["different"]
    found = other["outputs"][prices]
    assert found["different"] > 20 * KEYS
    assert not found["only_old"]
    assert not found["only_new"]
    example = found["examples"][0]
    assert example["differs"] == ["value.total"]
    published = shown(job)
    assert (published["phase"], published["report"]) == ("ended", other)
    nodes = published["versions"]["new"]["nodes"]
    changes = {node["name"]: node["change"] for node in nodes if node["kind"] == "processor"}
    assert {name for name, change in changes.items() if change != "same"} == {"Prices-Records"}
    assert [node["name"] for node in nodes if node["name"].startswith("rehearsal")] == []

    old, new = (json.loads(example[side]["value"]) for side in ("old", "new"))
    assert (old["count"], old["total"]) == (new["count"], 3 * old["count"])
    assert new["total"] == 4 * new["count"]

    assert left_topics(job) == []
    assert not list(tmp_path.glob("*-rehearsal.yaml"))
    check_counts(job, writer.rounds)


def test_a_rehearsal_that_is_killed_is_cleaned_up_by_the_next_one(
    job: Engine, tmp_path: Path
) -> None:
    with Writer(job) as writer:
        writer.go_on(40)
        pipeline = changed(job, tmp_path)
        for moment in ("making a savepoint", "making the shadow", "comparing"):
            with subprocess.Popen(
                command(job, pipeline), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
            ) as killed:
                assert killed.stderr is not None
                said: list[str] = []
                while not any(moment in line for line in said):
                    said.append(killed.stderr.readline())
                    assert said[-1], "".join(said)
                time.sleep(0.5)
                killed.kill()
            lock = tmp_path / f".{shadow_name(job.config.job_name)}" / ".lock"
            if moment == "making a savepoint":
                # `--discard` would leave what is still to be written.
                with pytest.raises(BlockingIOError), exclusive(lock, wait=False):
                    pass
            # Its daemons end by themselves, and the job goes on.
            with exclusive(lock):
                pass
        writer.go_on(40)
        assert rehearsed(job, pipeline, 0)["verdict"] == "equal"
        job.write([(b"k0", b"no number")])
    assert shown(job)["report"]["verdict"] == "equal"
    subprocess.run(command(job, "--discard"), capture_output=True, timeout=300, check=True)
    assert read_publication(job.config, Admin(job.config)) is None
    assert left_topics(job) == []
    check_counts(job, writer.rounds)
