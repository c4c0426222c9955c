"""Which tasks have a thread to themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline import AsyncProcessor, Processor, Record, TopologyBuilder, serdes, stores
from kafka_pipeline.common.pipelines.specs import ClassSpec, ProcessorSpec, SqlSpec
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.task_start import ProcessorStart
from tests.unit.taskmanager.noting import assigned_to, start

CLASS, QUERY = ClassSpec(code="shop:A"), SqlSpec(query="SELECT * FROM input")


class Passing(Processor):
    def process(self, record: Record) -> None:
        """Do nothing."""


class Waiting(AsyncProcessor):
    async def process(self, record: Record) -> None:
        """Wait for nothing."""


@pytest.mark.parametrize(
    ("spec", "processor", "has_global_store", "expected"),
    [
        (CLASS, Passing, False, False),
        (CLASS, Waiting, False, True),
        (QUERY, Passing, False, True),
        # Global stores are brought up to date on the thread that tasks share.
        (CLASS, Waiting, True, False),
        (QUERY, Passing, True, False),
    ],
)
def test_a_task_that_waits_for_others_has_its_own_thread(
    monkeypatch: pytest.MonkeyPatch,
    spec: ProcessorSpec,
    processor: type[Processor | AsyncProcessor],
    has_global_store: bool,
    expected: bool,
) -> None:
    names = stores.key_value("Names", serdes.bytes, serdes.bytes, persistent=False, logged=False)

    def group() -> NodeGroup:
        builder = TopologyBuilder()
        builder.add_source("source", "in")
        builder.add_processor("P", processor, "source")
        if has_global_store:
            builder.add_global_store(names, "names-source", "names", "names-P", Passing)
        return builder.build().groups[0]

    views = {"Names": names.open_in_memory()}
    monkeypatch.setattr(ProcessorStart, "_open_global_stores", lambda *_: views)
    assigned = assigned_to([], 0, monkeypatch, group)
    given = replace(assigned.replica, spec=spec)
    task = start(AssignedTask(given, assigned._context, 0))
    assert task.has_own_thread is expected
    task.close()
