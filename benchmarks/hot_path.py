"""CPU time per record of each part of a record's way: `python -m benchmarks.hot_path [workload …]`.

The real consumer, nodes, RocksDB and producer of one task work in one thread, against librdkafka's
built-in mock broker, which uses other threads. Times are CPU times of the task's own thread, which
limits a PipelineThread; `all threads` also includes the threads of librdkafka and the mock broker.
Each round processes the same records again; the table shows medians.

    python -m benchmarks.hot_path count Processor --rounds 7
    python -m benchmarks.hot_path --against ../other-worktree    # both, in turns, and the ratios
    python -m benchmarks.hot_path forward --profile              # the most expensive functions
"""

from __future__ import annotations

import argparse
import cProfile
import json
import logging
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer

from benchmarks.counting import BatchCounting, Counting
from benchmarks.lone_task import PARTITIONS, lone_task
from kafka_pipeline import TopologyBuilder, serdes, stores
from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.streams.builtin.count import COUNTS, CountProcessor
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.builtin.sum import SumProcessor
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.stores.bytes_store import BytesStore

KEYS = 10_000
RECORDS = 100_000
"""The mock broker keeps 5 MB of a partition."""
FETCH_RECORDS = 10_000
COMMIT_RECORDS = 30_000
"""Approximately the number of records in a commit interval of 100 ms."""
TIMEOUT_S = 30
SOURCE, SINK, STATE = "source", "sink", "state"
PARTS = ("fetch", "nodes", "send", "state", "commit")
WORKLOADS: dict[str, Any] = {
    "fetch": None,
    "fetch of 4": None,
    "forward": ForwardProcessor,
    "sum": SumProcessor,
    "count": CountProcessor,
    "Processor": Counting,
    "BatchProcessor": BatchCounting,
}
Times = dict[str, float]
"""Nanoseconds per record, by the part."""


class MockBroker:
    """A cluster inside librdkafka, with the records in its topic."""

    def __init__(self) -> None:
        quiet = logging.Logger("mock")
        quiet.addHandler(logging.NullHandler())
        self._owner = Producer(
            {
                "test.mock.num.brokers": 1,
                "logger": quiet,
                "linger.ms": 50,
                "queue.buffering.max.messages": 3 * RECORDS,
            }
        )
        (broker,) = self._owner.list_topics(timeout=TIMEOUT_S).brokers.values()
        self.host, self.port = broker.host, broker.port
        for number in range(RECORDS):
            key, value = b"%d" % (number * 7919 % KEYS), b"%016d" % number
            self._owner.produce(SOURCE, value, key, partition=0)
            several = number * PARTITIONS // RECORDS
            self._owner.produce("several", value, key, partition=several)
        if self._owner.flush(TIMEOUT_S):
            sys.exit("the mock broker takes no records")


def group_of(processor: Any) -> NodeGroup:
    """Return a source, the processor and a sink, as the engine builds them from pipeline.yaml."""
    builder = TopologyBuilder()
    is_class = processor in (Counting, BatchCounting)
    key = serdes.string if is_class else serdes.bytes
    builder.add_source(SOURCE, SOURCE, key_serde=key, value_serde=key)
    builder.add_processor("Stage", processor, SOURCE)
    if is_class:
        counts = stores.key_value("Counts", serdes.string, serdes.int64)
        builder.add_state_store(counts, ["Stage"])
    elif processor is CountProcessor:
        builder.add_state_store(COUNTS, ["Stage"])
    out = serdes.integer if is_class else serdes.bytes
    builder.add_sink(SINK, SINK, "Stage", key_serde=key, value_serde=out)
    (group,) = builder.build().groups
    return group


class Stopwatch:
    """Adds up the CPU time of this thread, by the part."""

    def __init__(self) -> None:
        self.taken_s = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the CPU time of the block."""
        began_s = time.thread_time()
        yield
        self.taken_s[name] += time.thread_time() - began_s


class Bench:
    """One processor with everything that a task has around it."""

    def __init__(self, name: str, broker: MockBroker, folder: Path) -> None:
        config = Config(
            server_ip=broker.host,
            server_port=broker.port,
            tm_number=1,
            parallelism=1,
            replication_factor=1,
            source_topic=SOURCE,
            sink_topic=SINK,
        )
        topic, count = ("several", PARTITIONS) if name == "fetch of 4" else (SOURCE, 1)
        self._partitions = [(topic, number) for number in range(count)]
        self._reader = PartitionReader(config, "group")
        self._task: GroupTask | None = None
        self._stores: dict[str, BytesStore] = {}
        if WORKLOADS[name] is None:
            return
        limits = dict.fromkeys((SINK, STATE), 1_000_000)
        self._producer = TaskProducer(config, "task", limits)
        self._producer.fence(TIMEOUT_S)
        group = group_of(WORKLOADS[name])
        self._stores = {s.name: s.open(folder / s.name, {}) for s in group.stores}
        self._task = lone_task(group, self._stores, self._partitions)

    def round(self) -> Times:
        """Process all records; return the time of each part."""
        watch = Stopwatch()
        self._reader.assign(dict.fromkeys(self._partitions, 0))
        left, uncommitted = RECORDS, 0
        began_s, thread_began_s = time.process_time(), time.thread_time()
        while left:
            with watch.part("fetch"):
                batches = self._reader.fetch(FETCH_RECORDS, 0.1).batches
            for batch in batches:
                left -= len(batch)
                if self._task is not None:
                    uncommitted += len(batch)
                    self._process(self._task, batch, watch, is_first=uncommitted == len(batch))
            if uncommitted >= COMMIT_RECORDS or (uncommitted and not left):
                self._commit(RECORDS - left, watch)
                uncommitted = 0
        whole_s, thread_s = time.process_time() - began_s, time.thread_time() - thread_began_s
        self._reader.unassign(self._partitions)
        each = {name: taken_s * 1e9 / RECORDS for name, taken_s in watch.taken_s.items()}
        return {
            **each,
            "thread": thread_s * 1e9 / RECORDS,
            "all threads": whole_s * 1e9 / RECORDS,
        }

    def _process(self, task: GroupTask, batch: Any, watch: Stopwatch, is_first: bool) -> None:
        with watch.part("nodes"):
            task.add(batch)
            while task.step(0, {}).has_more:
                pass
            outputs, _ = task.take()
        with watch.part("send"):
            if is_first:
                self._producer.begin()
            run: Any
            for kind, run in groupby(outputs, type):
                if kind is not OutputColumns:
                    self._producer.send_records(list(run))
                    continue
                for each in run:
                    self._producer.send_columns(
                        each.topic,
                        each.keys,
                        each.values,
                        each.timestamps,
                        each.headers,
                        each.partitions,
                    )

    def _commit(self, offset: int, watch: Stopwatch) -> None:
        with watch.part("state"):
            for store in self._stores.values():
                self._producer.send_state(STATE, 0, store.uncommitted)
        with watch.part("commit"):
            metadata = self._reader.group_metadata
            positions = dict.fromkeys(self._partitions, Committed(offset))
            offsets = self._producer.commit(positions, metadata)
            for store in self._stores.values():
                store.commit(offsets[STATE])

    def close(self) -> None:
        """Release everything."""
        self._reader.close()
        if self._task is not None:
            self._task.close()
            self._producer.close()
        for store in self._stores.values():
            store.close()


def measured(name: str, rounds: int, profile: bool) -> Times:
    """Return the medians of a workload, after a round to warm up."""
    broker = MockBroker()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(name, broker, Path(folder))
        bench.round()
        profiler = cProfile.Profile(time.thread_time)
        if profile:
            profiler.enable()
        found = [bench.round() for _ in range(rounds)]
        profiler.disable()
        bench.close()
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return {part: median(times[part] for times in found) for part in found[0]}


def measured_in(tree: Path, name: str, rounds: int) -> Times:
    """Return the medians of a workload with the engine of another folder, in a separate process.

    That process runs this same file, so that both engines are measured in the same way.
    """
    command = [sys.executable, __file__, name, "--rounds", str(rounds), "--json"]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    times: Times = json.loads(output)[name]
    return times


def compare(names: list[str], there: Path, rounds: int, turns: int) -> None:
    """Measure both engines in turns; print the medians and their ratios."""
    here = Path(__file__).parents[1]
    for name in names:
        found: dict[Path, list[Times]] = {here: [], there: []}
        for turn in range(turns):
            for tree in (here, there) if turn % 2 else (there, here):
                found[tree].append(measured_in(tree, name, rounds))
        middle = {
            tree: {part: median(times[part] for times in each) for part in each[0]}
            for tree, each in found.items()
        }
        print_row(f"{name}, there", middle[there])
        print_row(f"{name}, here", middle[here])
        before = middle[there]
        ratios = {part: ns / (before[part] or 1) for part, ns in middle[here].items()}
        print(f"{'  ratio':22}" + "".join(f"{each:12.2f}" for each in ratios.values()), flush=True)


def print_header() -> None:
    """Print the names of the columns."""
    print(f"{'ns per record':22}" + "".join(f"{p:>12}" for p in (*PARTS, "thread", "all threads")))


def print_row(name: str, times: Times) -> None:
    """Print one workload."""
    print(f"{name:22}" + "".join(f"{ns:12,.0f}" for ns in times.values()), flush=True)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="*", metavar="workload", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--against", type=Path, help="another folder with the engine")
    parser.add_argument("--turns", type=int, default=3, help="with --against: processes for each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    names = arguments.workloads
    if unknown := set(names) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(unknown)}: there are {', '.join(WORKLOADS)}")
    logging.getLogger("librdkafka").addHandler(logging.NullHandler())
    logging.getLogger("librdkafka").propagate = False
    if not arguments.json:
        print_header()
    if arguments.against is not None:
        compare(names, arguments.against.resolve(), arguments.rounds, arguments.turns)
        return
    found = {}
    for name in names:
        found[name] = measured(name, arguments.rounds, arguments.profile)
        if not arguments.json:
            print_row(name, found[name])
    if arguments.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
