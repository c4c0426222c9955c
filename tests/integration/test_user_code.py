"""Processors and topologies of users on a real Kafka and a real Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter
from kafka_pipeline.common.topics import TopicSpec
from tests.engine import START_TIMEOUT_S, Engine, all_run, engine
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@contextmanager
def running(
    folder: Path, servers: str, name: str, pipeline: str, module: str = "word_count", **more: object
) -> Iterator[Engine]:
    """Run a pipeline with the code of a module of tests/user_code on one TaskManager."""
    job = f"code_{name}_{os.getpid()}"
    settings = {"modules": f"[tests.user_code.{module}]", "python_path": f"[{ROOT}]", **more}
    with engine(
        folder, servers, job, pipeline.replace("JOB", job), tm_number=1, **settings
    ) as made:
        yield made


def write(made: Engine, topic: str, rows: list[tuple[bytes, bytes]]) -> None:
    writer = BulkWriter(made.config, topic)
    writer.write(rows)
    writer.flush(30)


@pytest.mark.long
def test_class_with_a_store_reads_named_sources_with_more_partitions(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """It has as many tasks as they have partitions, and goes on with its state."""
    pipeline = """
sources: {deposits: deposits_JOB, withdrawals: withdrawals_JOB}
sinks: {balances: balances_JOB}
processors:
  - id: Balance
    type: tests.user_code.word_count:RunningSum
    from: [deposits, withdrawals]
    to: [balances]
    serdes: {key: string, value: integer}
    stores: [{name: Sums, key: string, value: int64}]
    config: {start: 100}
    on_error: skip
"""
    with running(tmp_path, bootstrap_servers, "balance", pipeline) as made:
        job = made.config.job_name
        topics = [f"{name}_{job}" for name in ("deposits", "withdrawals")]
        Admin(made.config).ensure_topics([TopicSpec(topic, 3, 1) for topic in topics])
        made.start_job_manager()
        first = made.start_task_manager(0)
        status = made.wait_until(all_run([0]))
        assert sorted(str(task.task) for task in status.tasks) == [f"Balance_{n}" for n in range(3)]
        keys = [b"k%d" % number for number in range(20)]
        write(made, topics[0], [(key, b"10") for key in keys] + [(keys[0], b"no number")])
        made.wait_until_done({f"balances_{job}": 20})
        first.kill()
        made.start_task_manager(0)
        write(made, topics[1], [(key, b"-3") for key in keys])
        made.wait_until_done({f"balances_{job}": 40})
        found = made.read(f"balances_{job}")
    assert sorted(found) == sorted((key, value) for key in keys for value in (b"107", b"110"))


def test_inputs_of_a_stateful_class_must_have_as_many_partitions(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    pipeline = """
sources: {few: few_JOB, many: many_JOB}
processors:
  - {id: Sum, type: "tests.user_code.word_count:RunningSum", from: [few, many], to: [sink],
     stores: [{name: Sums}]}
"""
    with running(tmp_path, bootstrap_servers, "uneven", pipeline) as made:
        job = made.config.job_name
        Admin(made.config).ensure_topics([TopicSpec(f"many_{job}", 5, 1)])
        daemon = made.start_job_manager()
        assert daemon.wait(START_TIMEOUT_S)
        log = daemon.log_file.read_text()
    assert daemon.exit_code == 2
    assert f"few_{job} has 2, many_{job} has 5" in log


@pytest.mark.parametrize(
    ("topic", "said"),
    long_but_the_first(
        [
            ("state_topic_A", 'the input source_{job} of "A" has 2 partitions, and had 3'),
            ("A_B", "topic A_B_{job} has 3 partitions, the pipeline needs 2; what to do: docs"),
        ]
    ),
)
def test_topic_with_other_partitions_than_its_input_is_never_to_be_deleted(
    topic: str, said: str, tmp_path: Path, bootstrap_servers: str
) -> None:
    pipeline = "[{id: A, type: count, to: [B]}, {id: B, type: sum, to: [sink]}]"
    with running(tmp_path, bootstrap_servers, f"misfit_{topic}", pipeline) as made:
        job = made.config.job_name
        Admin(made.config).ensure_topics([TopicSpec(f"{topic}_{job}", 3, 1)])
        daemon = made.start_job_manager()
        assert daemon.wait(START_TIMEOUT_S)
        log = daemon.log_file.read_text()
    assert daemon.exit_code == 2
    assert said.format(job=job) in log
    assert "delete" not in log


def test_code_that_is_not_there_stops_the_task_manager_before_anything_moves(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """It names the missing module, and where it looked."""
    with running(
        tmp_path, bootstrap_servers, "missing", "[{id: F, type: forward, to: [sink]}]"
    ) as made:
        settings = {"modules": "[no_such_module]", "python_path": "[/nowhere]"}
        file = made.write_config("other", **settings)
        daemon = made.start_task_manager(0, config_file=file)
        assert daemon.wait(START_TIMEOUT_S)
        log = daemon.log_file.read_text()
    assert daemon.exit_code == 2
    assert 'module "no_such_module"' in log
    assert "/nowhere" in log


@pytest.mark.long
def test_source_that_begins_at_its_end_leaves_out_what_was_there(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """It leaves out nothing else, even if the task starts again before its first record."""
    pipeline = """
sources: {clicks: {topic: clicks_JOB, auto_offset_reset: latest}}
processors: [{id: Pass, type: forward, from: [clicks], to: [sink]}]
"""
    with running(tmp_path, bootstrap_servers, "latest", pipeline) as made:
        topic = f"clicks_{made.config.job_name}"
        Admin(made.config).ensure_topics([TopicSpec(topic, 2, 1)])
        write(made, topic, [(b"k%d" % number, b"old") for number in range(20)])
        made.start_job_manager()
        first = made.start_task_manager(0)
        made.wait_until(all_run([0]))
        first.kill()
        write(made, topic, [(b"k%d" % number, b"new") for number in range(20)])
        made.start_task_manager(0)
        made.wait_until_done({made.config.sink_topic: 20})
        found = made.read(made.config.sink_topic)
    assert sorted(found) == sorted((b"k%d" % number, b"new") for number in range(20))
