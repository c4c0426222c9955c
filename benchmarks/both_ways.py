"""What batches save over single records, for each operator of the DSL that can take either.

Sessions always take single records; they are here for what that costs.

The nodes of one task read records from memory and write them there, without Kafka around them; the
stores are RocksDB. Both ways process the same batches in turns; the table shows medians of CPU
times, and their ratio. A kernel for batches stays in the engine only if its ratio is 1.3 or more.

    python -m benchmarks.both_ways
    python -m benchmarks.both_ways "filter" "count" --rounds 9
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lone_task import lone_task, results_of
from kafka_pipeline import StreamsBuilder, Suppress, serdes, value, windows
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.nodes import Source

BATCH_RECORDS = 5_000
KEYS = 2_000
OTHER = "other"
"""A second topic with the same records, for joins of streams."""
_DAY_MS = 86_400_000


def _is_one(key: str, text: str) -> bool:
    return text[-1] == "1"


def _split(builder: StreamsBuilder) -> None:
    branches = {"one": _is_one, "two": lambda key, text: text[-1] == "2"}
    for name, branch in builder.stream("in", name="In").split(branches, default="rest").items():
        branch.to(f"out-{name}")


def _to(steps: Callable[[Stream], Stream]) -> Callable[[StreamsBuilder], None]:
    return lambda builder: steps(builder.stream("in", name="In")).to("out")


def _join(builder: StreamsBuilder) -> None:
    table = builder.table("table", name="Table")
    builder.stream("in", name="In").left_join(table, lambda a, b: a).to("out")


def _subscribe(builder: StreamsBuilder) -> None:
    left, right = builder.table("in", name="Left"), builder.table("right", name="Right")
    joined = left.join(right, lambda a, b: a, foreign_key=lambda text: text[-2:], name="Join")
    joined.to_stream().to("out")


def _join_streams(method: str) -> Callable[[StreamsBuilder], None]:
    """Join the records of both topics, which alternate: each meets about one of the other."""

    def add(builder: StreamsBuilder) -> None:
        left, right = builder.stream("in", name="In"), builder.stream(OTHER, name="Other")
        window = windows.join(before_ms=KEYS // 2, after_ms=KEYS // 2, grace_ms=0)
        getattr(left, method)(right, lambda a, b: a, window, name="Join").to("out")

    return add


def _join_tables(builder: StreamsBuilder) -> None:
    left, right = builder.table("in", name="Left"), builder.table("table", name="Right")
    left.join(right, lambda a, b: a, name="Join").to_stream().to("out")


def _suppress(builder: StreamsBuilder) -> None:
    rows = builder.table("in", name="Rows")
    rows.suppress(Suppress.until_time_limit(KEYS), name="Suppressed").to_stream().to("out")


def _counted_in(window: Any) -> Callable[[StreamsBuilder], None]:
    def counted(stream: Stream) -> Stream:
        counts = stream.group_by_key().windowed_by(window).count(name="Counts")
        return counts.to_stream().map(lambda windowed, count: (windowed.key, str(count)))

    return _to(counted)


WORKLOADS: dict[str, Callable[[StreamsBuilder], None]] = {
    "filter": _to(lambda s: s.filter(_is_one)),
    "filter_not": _to(lambda s: s.filter_not(_is_one)),
    "map_values": _to(lambda s: s.map_values(lambda text: "0" + text)),
    "map": _to(lambda s: s.map(lambda key, text: (text, key))),
    "select_key": _to(lambda s: s.select_key(lambda key, text: text)),
    "flat_map": _to(lambda s: s.flat_map(lambda key, text: [(key, text), (text, key)])),
    "flat_map_values": _to(lambda s: s.flat_map_values(lambda text: [text, "0"])),
    "peek": _to(lambda s: s.peek(lambda key, text: None)),
    "filter by expression": _to(lambda s: s.filter(value().str.ends_with("1"))),
    "map_values by expression": _to(lambda s: s.map_values("0" + value())),
    "filter + map_values + select_key": _to(
        lambda s: (
            s.filter_not(_is_one)
            .map_values(lambda text: "0" + text)
            .select_key(lambda key, text: text)
        )
    ),
    "split": _split,
    "table": lambda builder: builder.table("in", name="Table").to_stream().to("out"),
    "count": _to(
        lambda s: s.group_by_key().count(name="Counts").to_stream().map_values(str),
    ),
    "count in tumbling windows": _counted_in(windows.tumbling(_DAY_MS, grace_ms=0)),
    "count in 12 hopping windows": _counted_in(
        windows.hopping(12 * KEYS, advance_ms=KEYS, grace_ms=0)
    ),
    "count in sliding windows": _counted_in(windows.sliding(2 * KEYS, grace_ms=0)),
    "count in sessions": _counted_in(windows.session(KEYS, grace_ms=0)),
    "join with a table": _join,
    "join of streams": _join_streams("join"),
    "left join of streams": _join_streams("left_join"),
    "join of tables": _join_tables,
    "suppressed table": _suppress,
    "foreign-key join, left side": _subscribe,
}


def group_of(add: Callable[[StreamsBuilder], None]) -> NodeGroup:
    """Return the group of nodes that reads the topic `in`."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    add(builder)
    groups = builder.build().groups
    return next(group for group in groups if any("in" in s.topics for s in group.sources))


def one_by_one(group: NodeGroup) -> NodeGroup:
    """Return the same group, whose sources pass their records on one by one."""
    nodes = tuple(
        replace(node, one_by_one=True, meets_at_points=False) if isinstance(node, Source) else node
        for node in group.nodes
    )
    return replace(group, nodes=nodes)


def batches_of(topic: str, count: int) -> Iterator[RecordBatch]:
    """Return records with few keys and numbers as values."""
    chance = random.Random(7)
    for start in range(0, count, BATCH_RECORDS):
        offsets = range(start, min(start + BATCH_RECORDS, count))
        keys = [b"key-%d" % chance.randrange(KEYS) for _ in offsets]
        values = [b"%012d" % chance.randrange(10**9) for _ in offsets]
        yield RecordBatch(topic, 0, keys, values, [1_000_000 + at for at in offsets], offsets)


def measure(group: NodeGroup, batches: Sequence[RecordBatch]) -> float:
    """Return the nanoseconds of CPU time per record of `batches`."""
    with tempfile.TemporaryDirectory() as folder:
        stores = {store.name: store.open(Path(folder) / store.name, {}) for store in group.stores}
        topics = [topic for source in group.sources for topic in source.topics]
        fed = [topic for topic in topics if topic in ("in", OTHER)]
        task = lone_task(group, stores, [(t, 0) for t in topics], is_ordered=OTHER in fed)
        if "table" in topics:
            results_of(task, next(batches_of("table", BATCH_RECORDS)))
        began_s = time.process_time()
        for batch in batches:
            results_of(task, *(replace(batch, topic=topic) for topic in fed))
        spent_s = time.process_time() - began_s
        task.close()
        for store in stores.values():
            store.close()
    return spent_s / sum(map(len, batches)) * 1e9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="*", metavar="workload", default=list(WORKLOADS))
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - set(WORKLOADS):
        sys.exit(f"no workload {', '.join(unknown)}: there are {', '.join(WORKLOADS)}")
    batches = list(batches_of("in", arguments.records))
    print(f"{'ns per record':34}{'one by one':>12}{'batches':>10}{'ratio':>8}")
    for name in arguments.workloads:
        group = group_of(WORKLOADS[name])
        ways = (one_by_one(group), group)
        rounds = [[measure(way, batches) for way in ways] for _ in range(arguments.rounds)]
        alone, together = (median(each) for each in zip(*rounds, strict=True))
        print(f"{name:34}{alone:12.0f}{together:10.0f}{alone / together:8.2f}", flush=True)


if __name__ == "__main__":
    main()
