"""Calls of an `AsyncProcessor` next to busy processors: `python -m benchmarks.calls`.

A PipelineThread with its real threads and event loops, but without Kafka, runs a class whose calls
sleep 5 ms, 100 at a time: alone, next to classes that sleep, next to built-in types, and next to
classes that compute. All have a backlog. Calls are counted by the CPU time of the process, so the
figures hold on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from benchmarks.counting import Computing, Sleeping
from kafka_pipeline import AsyncProcessor, Processor, Record, TopologyBuilder
from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka import guarded_producer
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import Fetched
from kafka_pipeline.common.pipelines.specs import ClassSpec, ForwardSpec, ProcessorSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.taskmanager import channel_messages
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.pipeline_thread import PipelineThread
from kafka_pipeline.taskmanager.running_task import TaskContext
from kafka_pipeline.taskmanager.task_start import ProcessorStart
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from tests.unit.taskmanager.fakes import CONFIG, FakeAdmin, FakeClients, NobodyKnows, quiet_watch
from tests.unit.taskmanager.noting import NotingProducer

BATCH = 10_000
NEIGHBOURS = 4
CALL_S = 0.005
COMMIT_S = 0.01
NEIGHBOUR: Mapping[str, Callable[[], Processor]] = {
    "shop:Sleeping": lambda: Sleeping(0.1),
    "shop:Computing": lambda: Computing(0.001),
}


class _Calling(AsyncProcessor):
    async def process(self, record: Record) -> Record:
        await asyncio.sleep(CALL_S)
        return record


class _CountingResults(Processor):
    results = 0

    def process(self, record: Record) -> None:
        _CountingResults.results += 1


class _Producer(NotingProducer):
    """A producer whose commits take some time."""

    def __init__(self) -> None:
        super().__init__([])

    def commit_transaction(self, timeout: float) -> None:
        time.sleep(COMMIT_S)


@dataclass(slots=True)
class _EndlessReader:
    """Has records of all partitions that are not paused."""

    positions: dict[Partition, int] = field(default_factory=dict)
    paused: set[Partition] = field(default_factory=set)
    group_metadata = None

    def committed(self, partitions: Sequence[Partition], *_: Any) -> dict[Partition, Committed]:
        return {partition: Committed(0, 0) for partition in partitions}

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.positions |= positions

    def unassign(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.positions.pop(partition, None)

    def pause(self, partitions: Collection[Partition]) -> None:
        self.paused.update(partitions)

    def resume(self, partitions: Collection[Partition]) -> None:
        self.paused.difference_update(partitions)

    def known_end(self, _: Partition) -> int:
        return 1 << 40

    def fetch(self, _: int, wait_s: float) -> Fetched:
        batches = []
        for (topic, number), at in self.positions.items():
            if (topic, number) not in self.paused:
                self.positions[topic, number] = at + BATCH
                keys, values, times = [b"k"] * BATCH, [b"v"] * BATCH, [1] * BATCH
                offsets = list(range(at, at + BATCH))
                batches.append(RecordBatch(topic, number, keys, values, times, offsets))
        if not batches:
            time.sleep(wait_s)
        return Fetched(batches)

    def close(self) -> None: ...


class _Channel:
    """A driver that assigns tasks, and is never silent."""

    is_lost = False

    def __init__(self, replicas: Sequence[ProcessorReplica]) -> None:
        self._commands = [channel_messages.Assign(each, 0) for each in replicas]

    @property
    def last_heard_s(self) -> float:
        return time.monotonic()

    def receive(self, wait_s: float) -> channel_messages.Command | None:
        return self._commands.pop() if self._commands else None

    def send(self, _: object) -> None: ...


def _group(topic: str, *suppliers: Callable[[], Any]) -> NodeGroup:
    builder = TopologyBuilder()
    parent = "source"
    builder.add_source(parent, topic)
    for number, supplier in enumerate(suppliers):
        builder.add_processor(f"P{number}", supplier, parent)
        parent = f"P{number}"
    return builder.build().groups[0]


def _replica(name: str, spec: ProcessorSpec) -> ProcessorReplica:
    return ProcessorReplica(TaskId(name, 0), spec, (name,), ("sink",), (f"in_{name}",), ("out",))


def results_per_cpu_s(neighbours: Sequence[ProcessorReplica], cpu_s: float) -> float:
    """Return the results of the calls per second of CPU time of this process."""
    code = ClassSpec(code="shop:A")
    forward = ProcessorStart._node_group

    def node_group(start: Any) -> NodeGroup:
        replica = start._replica
        (topic,) = replica.in_topics
        if replica.task.processor == "Calls":
            return _group(topic, _Calling, _CountingResults)
        if isinstance(replica.spec, ForwardSpec):
            return forward(start)
        return _group(topic, lambda: NEIGHBOUR[replica.spec.code]())

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(guarded_producer, "Producer", lambda _: _Producer())
        patch.setattr(ProcessorStart, "_node_group", node_group)
        config = replace(CONFIG, state_dir=Path(folder))
        clients: Any = FakeClients(FakeAdmin(), _EndlessReader)
        stores = GlobalStores(config, 0, 0, clients)
        watch = TimeWatch(config, NobodyKnows())
        context = TaskContext(config, 0, 0, "cluster", clients, stores, quiet_watch(), watch)
        channel: Any = _Channel([_replica("Calls", code), *neighbours])
        thread = PipelineThread(context, channel)
        while not _CountingResults.results:
            thread.step()
        began_s, before = time.process_time(), _CountingResults.results
        while time.process_time() < began_s + cpu_s:
            thread.step()
        rate = (_CountingResults.results - before) / (time.process_time() - began_s)
        _CountingResults.results = 0
        thread.close()
    return rate


def main(words: Sequence[str] | None = None) -> None:
    """Print the rate of each case."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calls", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--cpu-seconds", type=float, default=5)
    options = parser.parse_args(words)
    structlog.configure(processors=[lambda *_: (_ for _ in ()).throw(structlog.DropEvent)])
    numbers = range(NEIGHBOURS)
    cases = {
        "alone": [],
        f"next to {NEIGHBOURS} that sleep": [
            _replica(f"S{number}", ClassSpec(code="shop:Sleeping")) for number in numbers
        ],
        f"next to {NEIGHBOURS} of a built-in type": [
            _replica(f"F{number}", ForwardSpec()) for number in numbers
        ],
        f"next to {NEIGHBOURS} that compute": [
            _replica(f"C{number}", ClassSpec(code="shop:Computing")) for number in numbers
        ],
    }
    for name, neighbours in cases.items():
        rate = results_per_cpu_s(neighbours, options.cpu_seconds)
        print(f"{name:<32}{rate:>10,.0f} calls per CPU second", flush=True)


if __name__ == "__main__":
    main()
