"""The state of a processor is given up: that begins empty, and nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, read_committed
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.deploy import Proposal, deploy
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.plan import NOTHING_LOST, plan
from kafka_pipeline.deployment.prepare import prepared
from kafka_pipeline.operations.savepoints.change_at_rest import ChangeAtRest
from kafka_pipeline.operations.savepoints.restore import Restore
from tests.engine import Engine, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = """
processors:
- {{id: Counter, type: count, to: [sink]}}
- {{id: Q, type: sql, query: "SELECT {} AS value FROM input GROUP BY value", to: [sink]}}
"""
STEPS = ("_renew_topics", "_fill", "_commit")


class KilledError(BaseException):
    """What ends the command in the middle."""


def write(job: Engine, topic: str, count: int) -> None:
    writer = BulkWriter(job.config, topic)
    writer.write((b"k%d" % n, b"v") for n in range(count))
    writer.flush(timeout_s=60)


def read(job: Engine, topic: str) -> int:
    return sum(map(len, read_committed(job.config, topic, job.config.parallelism)))


def commit(job: Engine, processor: str, at: dict[Partition, Committed]) -> None:
    group = job.names.consumer_group(processor)
    with (
        closing(PartitionReader(job.config, group)) as reader,
        closing(TaskProducer(job.config, f"test-{group}", {})) as producer,
    ):
        producer.fence(60)
        producer.begin()
        producer.commit(at, reader.group_metadata)


def committed(job: Engine, processor: str, topic: str) -> dict[Partition, int]:
    with closing(PartitionReader(job.config, job.names.consumer_group(processor))) as reader:
        places = [(topic, number) for number in range(job.config.parallelism)]
        return {place: at.offset for place, at in reader.committed(places, 60).items()}


def with_query(job: Engine, select: str, admin: Admin) -> Pipeline:
    job.write_pipeline(PIPELINE.format(select))
    return prepared(job.pipeline, job.config, admin)


@pytest.mark.parametrize("killed_at", [None, *STEPS])
def test_only_what_is_lost_begins_empty(
    killed_at: str | None, tmp_path: Path, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"lost_{os.getpid()}_{killed_at}"
    text = PIPELINE.format("count(*)")
    with engine(tmp_path, bootstrap_servers, name, text) as job:
        admin = Admin(job.config)
        before = with_query(job, "count(*)", admin)
        deploy(Proposal(before, text), job.config, admin, None)
        source, between = job.config.source_topic, f"Q_groups-repartition_{name}"
        counts, groups = f"state_topic_Counter_{name}", f"state_topic_Q_groups_{name}"
        for topic in (source, between, counts, groups):
            write(job, topic, 20)
        at = {(source, 0): Committed(3), (source, 1): Committed(4)}
        commit(job, "Counter", at)
        commit(job, "Q-rows", at)
        commit(job, "Q", {(between, 0): Committed(2)})
        ids = admin.topic_ids([source, between, counts, groups])

        after = with_query(job, "max(value)", admin)
        found = plan(before, after, admin.topics().keys(), {}, ["Q"])
        assert found.lost != NOTHING_LOST
        proposal = Proposal(after, "new")

        def change() -> int:
            change = ChangeAtRest(job.config, admin, tmp_path / "saved", lambda line: None)
            return change.carry_out(proposal, 60, drains=False, lost=found.lost)

        if killed_at is not None:
            with monkeypatch.context() as patched:
                patched.setattr(Restore, killed_at, killed_after(getattr(Restore, killed_at)))
                with pytest.raises(KilledError):
                    change()
            wish = read_deployment(job.config, admin).wish
            assert wish is not None
            assert wish.stop is not None
        assert change() == 2

        wish = read_deployment(job.config, admin).wish
        assert wish is not None
        assert (wish.version, wish.stop) == (2, None)
        assert {topic: read(job, topic) for topic in ids} == {
            source: 20,
            between: 0,
            counts: 20,
            groups: 0,
        }
        now = admin.topic_ids([*ids])
        assert {topic for topic in ids if now[topic] != ids[topic]} == {between, groups}
        assert committed(job, "Counter", source) == {(source, 0): 3, (source, 1): 4}
        assert committed(job, "Q-rows", source) == {(source, 0): 3, (source, 1): 4}
        assert all(offset == 0 for offset in committed(job, "Q", between).values())


def killed_after(step: Callable[..., Any]) -> Callable[..., None]:
    """Return a step that is done, and after which the command is killed."""

    def killed(*arguments: Any) -> None:
        step(*arguments)
        raise KilledError

    return killed
