"""Global stores and sources by a pattern on a real Kafka and a real Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, Row
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.topics import TopicSpec
from tests.engine import START_TIMEOUT_S, Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
LOOKUP = """
- {id: W, type: topology, builder: "tests.user_code.lookups:lookup",
   config: {orders: source, names: names_JOB, named: sink}}
"""
GATHER = """
- {id: W, type: topology, builder: "tests.user_code.lookups:gather",
   config: {pattern: "lines_.*_JOB", gathered: sink}}
- {id: lines, type: forward, to: [copy]}
- {id: copy, type: count, to: [sink]}
"""


@contextmanager
def running(folder: Path, servers: str, name: str, pipeline: str) -> Iterator[Engine]:
    """Run a pipeline with the code of tests/user_code on one TaskManager with two threads."""
    job = f"globals_{name}_{os.getpid()}"
    settings = {"modules": "[tests.user_code.lookups]", "python_path": f"[{ROOT}]"}
    with engine(
        folder, servers, job, pipeline.replace("JOB", job), tm_number=1, **settings
    ) as made:
        yield made


def write(made: Engine, topic: str, rows: list[Row]) -> None:
    writer = BulkWriter(made.config, topic)
    writer.write(rows)
    writer.flush(30)


def make(made: Engine, topic: str, partitions: int) -> str:
    """Make a topic, whose name ends with that of the job."""
    name = f"{topic}_{made.config.job_name}"
    Admin(made.config).ensure_topics([TopicSpec(name, partitions, 1)])
    return name


def all_failed(status: ClusterStatus) -> bool:
    states = [task.status.state for task in status.tasks if task.status]
    return len(states) == 2 and set(states) == {TaskState.FAILED}


def write_until(made: Engine, orders: list[Row], wanted: set[Row]) -> None:
    """Write orders again and again until all that is wanted has come out."""
    for _ in range(200):
        before = len(made.read(made.config.sink_topic))
        made.write(orders)
        made.wait_until_done({made.config.sink_topic: before + len(orders)})
        if wanted <= set(made.read(made.config.sink_topic)):
            return
    raise AssertionError(f"the store does not get there\n{made.logs()}")


def test_all_tasks_read_all_partitions_of_a_global_topic_and_see_what_comes(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """The first record sees what was there before, with three partitions and two threads."""
    ids = [b"%d" % number for number in range(30)]
    orders: list[Row] = [(b"k" + id_, id_) for id_ in ids]
    with running(tmp_path, bootstrap_servers, "lookup", LOOKUP) as made:
        names = make(made, "names", 3)
        write(made, names, [(id_, b"old") for id_ in ids])
        write(made, names, [(id_, b"name " + id_) for id_ in ids] + [(None, b"nobody")])
        made.start_job_manager()
        made.start_task_manager(0, threads=2)
        status = made.wait_until(all_run([0]))
        assert sorted(str(task.task) for task in status.tasks) == ["W-Orders_0", "W-Orders_1"]
        made.write(orders)
        made.wait_until_done({made.config.sink_topic: len(orders)})
        assert sorted(made.read(made.config.sink_topic)) == sorted(
            (b"k" + id_, b"name " + id_) for id_ in ids
        )
        # They follow the topic on their own, so a test cannot know when they have it.
        write(made, names, [(ids[0], b"new"), (ids[1], None)])
        write_until(made, orders[:2], {(b"k0", b"new"), (b"k1", b"?")})
        assert "records left out of a global store" in made.logs()


def test_a_global_record_that_fails_fails_the_tasks_with_the_reason_until_it_is_gone(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    with running(tmp_path, bootstrap_servers, "poison", LOOKUP) as made:
        names = make(made, "names", 1)
        write(made, names, [(b"1", b"one")])
        made.start_job_manager()
        first = made.start_task_manager(0, threads=2)
        made.wait_until(all_run([0]))
        write(made, names, [(b"1", b"bad")])
        status = made.wait_until(all_failed)
        (reason,) = {task.reason for task in status.tasks}
        problem = f'global store "Names": record {names}[0]@1: ValueError: no name'
        assert reason.startswith(f"{problem} (tests/user_code/lookups.py:")
        # Started again, they would read it again: first it has to go.
        Admin(made.config).delete_before({(names, 0): 2})
        write(made, names, [(b"1", b"uno")])
        first.kill()
        made.start_task_manager(0, threads=2)
        made.wait_until(all_run([0]))
        made.write([(b"k", b"1")])
        made.wait_until_done({made.config.sink_topic: 1})
        assert made.read(made.config.sink_topic) == [(b"k", b"uno")]


def test_a_pattern_finds_topics_of_users_and_the_next_job_manager_those_that_came_later(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """The arc of the other processors, `lines_copy_…`, matches it as well, and is not read."""
    with running(tmp_path, bootstrap_servers, "gather", GATHER) as made:
        sink = made.config.sink_topic
        topics = [make(made, "lines_a", 3), make(made, "lines_b", 3)]
        first = made.start_job_manager()
        made.start_task_manager(0)
        status = made.wait_until(all_run([0]))
        of_pattern = [str(t.task) for t in status.tasks if t.task.processor == "W-All"]
        assert sorted(of_pattern) == ["W-All_0", "W-All_1", "W-All_2"]
        for topic in topics:
            write(made, topic, [(topic.encode(), b"%d" % number) for number in range(20)])
        made.wait_until_done({sink: 40})
        topics.append(make(made, "lines_late", 3))
        write(made, topics[2], [(topics[2].encode(), b"%d" % number) for number in range(20)])
        # Its arc has a record now, that must not come back through the pattern.
        made.write([(b"k", b"v")])
        made.wait_until_done({sink: 41})
        first.terminate()
        assert first.wait(60)
        made.start_job_manager()
        made.wait_until_done({sink: 61})
        found = made.read(sink)
    expected = [(topic.encode(), b"%d" % number) for topic in topics for number in range(20)]
    assert sorted(found) == sorted([*expected, (b"k", b"1")])


def test_a_pattern_that_matches_nothing_ends_the_job_manager_with_the_reason(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    with running(tmp_path, bootstrap_servers, "nothing", GATHER) as made:
        daemon = made.start_job_manager()
        assert daemon.wait(START_TIMEOUT_S)
        log = daemon.log_file.read_text()
    assert daemon.exit_code == 2
    assert f'no topic matches the pattern "lines_.*_{made.config.job_name}" of a source' in log
