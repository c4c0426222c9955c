"""Queries of the state of a running job: under load, and while its tasks change their owners."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher
from kafka_pipeline.operations.state import StateClient
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = "- {id: Counter, type: count, to: [sink]}\n"
KEYS = [b"k%d" % number for number in range(7)]
BATCHES = 20


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    with engine(
        tmp_path,
        bootstrap_servers,
        f"lookups_{os.getpid()}",
        PIPELINE,
        tm_number=2,
        heartbeat_interval_ms=500,
        state_port=0,
    ) as made:
        yield made


def state(job: Engine, *arguments: str) -> tuple[int, str]:
    """Run `pipeline state`; return its exit code, and what it prints."""
    name, *others = arguments
    words = [str(command_path("pipeline")), "state", name, str(job.config_file), *others]
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_counts_only_grow_and_are_exact_wherever_their_task_runs(job: Engine) -> None:
    managers = [job.start_task_manager(number, threads=1) for number in range(2)]
    job.start_job_manager()
    job.wait_until(all_run([0, 1]))
    seen: dict[bytes, list[int]] = {key: [0] for key in KEYS}
    is_over = threading.Event()
    looks = threading.Condition()

    def has_seen(count: int) -> bool:
        return max(map(max, seen.values())) >= count

    def write() -> None:
        for number in range(BATCHES):
            job.write([(key, b"v") for key in KEYS] * 50)
            # The next batch comes when the one before this one has been seen.
            with looks:
                looks.wait_for(partial(has_seen, 50 * number), 60)
        job.wait_until_done({job.config.sink_topic: BATCHES * 50 * len(KEYS)})
        is_over.set()

    writer = threading.Thread(target=write)
    with closing(ClusterWatcher(job.config)) as watcher:
        watcher.read_until_fresh()
        client = StateClient(watcher)
        store = client.store("Counter", None)

        def ask(key: bytes) -> int:
            found = client.get(store, key, None, {})
            owners[key] = found["task_manager"]
            return sum(row["value"] for row in found["entries"])

        owners: dict[bytes, int] = {}
        writer.start()
        while not is_over.is_set() and writer.is_alive():
            for key in KEYS:
                seen[key].append(ask(key))
            with looks:
                looks.notify_all()
        writer.join()
        assert is_over.is_set()
        for key, counts in seen.items():
            assert all(former <= count for former, count in pairwise(counts)), (key, counts)
            assert ask(key) == BATCHES * 50
        assert len({count for counts in seen.values() for count in counts}) > 3  # it was under load

        assert set(owners.values()) == {0, 1}
        lost = owners[KEYS[0]]
        managers[lost].kill()
        assert [ask(key) for key in KEYS] == [BATCHES * 50] * len(KEYS)
        assert set(owners.values()) == {1 - lost}

    code, printed = state(job, "get", "Counter", "k0", "--json")
    (row,) = json.loads(printed)["entries"]
    assert (code, row) == (0, {"key": "k0", "value": BATCHES * 50})
    code, printed = state(job, "scan", "Counter", "--prefix", "k", "--limit", "5", "--json")
    assert code == 0
    assert {row["value"] for row in json.loads(printed)} == {BATCHES * 50}
    assert len(json.loads(printed)) == 5
    code, printed = state(job, "list", "--json")
    stores = json.loads(printed)
    assert [(s["store"], s["partition"], s["task_manager"]) for s in stores] == [
        ("counts", 0, 1 - lost),
        ("counts", 1, 1 - lost),
    ]
