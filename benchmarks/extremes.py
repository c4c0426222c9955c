"""Whether min and max of rows that change slow down: `python -m benchmarks.extremes`.

The values of `--groups` groups are kept in RocksDB as the engine uses it, without Kafka and Spark.
In each batch, one value of each group is replaced by a smaller one, a larger one, or a random one.
For each tenth of the batches, the benchmark prints the CPU time of a batch. It compares the ends of
each group with a model.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import GroupingSpec
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.kept_values import KeptValues
from kafka_pipeline.streams.sql.state_shape import StateShape
from kafka_pipeline.streams.sql.state_stores import VALUES, state_stores

VALUES_TYPE = pa.list_(pa.struct([("_0", pa.int64()), ("_1", pa.int64())]))
SHAPE = StateShape(
    groups=pa.schema([("g", pa.string())]),
    buffers=pa.schema([("c", pa.int64())]),
    values=pa.schema([("numbers", VALUES_TYPE)]),
    output=pa.schema([]),
    window=None,
    window_column="",
    order_column="",
    last_time="",
    key_column="g",
    is_distinct=False,
    best=0,
    ranked="",
    loses_rows=False,
    empty=pa.table({"c": pa.array([0], pa.int64())}),
    content="{}",
    readings={"numbers": "ends"},
)
SHARES = 10
COMMIT_BATCHES = 2
Next = Callable[[int, random.Random], int]
WAYS: dict[str, Next] = {
    "falling": lambda value, _: value - 1,
    "rising": lambda value, _: value + 1,
    "random": lambda _, chance: chance.randrange(2**40),
}


class Kept:
    """The values of all groups, and a model of them."""

    def __init__(self, folder: Path, groups: int, members: int) -> None:
        """Begin with so many values in each group."""
        (builder,) = (e for e in state_stores(GroupingSpec(keeps_values=True)) if e.name == VALUES)
        self.bytes = builder.open(folder / VALUES, {})
        store: Any = builder.build(self.bytes)
        context = SimpleNamespace(get_state_store={VALUES: store}.__getitem__)
        self._kept = KeptValues(SHAPE, cast("ProcessorContext", context))
        self._names = [f"group {number}" for number in range(groups)]
        self._model = [[10**6 + member for member in range(members)] for _ in range(groups)]
        self._batches = 0
        self._change([[(value, 1) for value in values] for values in self._model])

    def replace(self, way: Next, chance: random.Random) -> float:
        """Replace a value of each group; return the CPU time in seconds."""
        changes = []
        for values in self._model:
            place = chance.randrange(len(values))
            former, values[place] = values[place], way(values[place], chance)
            changes.append([(former, -1), (values[place], 1)])
        return self._change(changes)

    def _change(self, changes: list[list[tuple[int, int]]]) -> float:
        lists = [[{"_0": value, "_1": change} for value, change in each] for each in changes]
        columns = [
            pa.array(self._names),
            pa.array([0] * len(self._names)),
            pa.array(lists, VALUES_TYPE),
        ]
        rows = pa.table(columns, schema=SHAPE.rows)
        keys = [name.encode() for name in self._names]
        groups = Groups(keys, [0] * len(keys), [b""] * len(keys))
        began_s = time.process_time()
        found = self._kept.changed(rows, groups)
        self._batches += 1
        if self._batches % COMMIT_BATCHES == 0:
            self.bytes.commit(self._batches)
        taken_s = time.process_time() - began_s
        ends = [[value["_0"] for value in each] for each in found["numbers"].to_pylist()]
        if ends != [[min(values), max(values)] for values in self._model]:
            sys.exit("the smallest or the largest values differ from the model")
        return taken_s


def main() -> None:
    """Measure, and print a line for each way in which values change."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=400, metavar="N")
    parser.add_argument("--groups", type=int, default=2_000, metavar="N")
    parser.add_argument("--members", type=int, default=1, metavar="N", help="values of a group")
    options = parser.parse_args()
    for name, way in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            kept, chance = Kept(Path(folder), options.groups, options.members), random.Random(1)
            size = max(options.batches // SHARES, 1)
            shares_ms = [
                1000 * sum(kept.replace(way, chance) for _ in range(size)) / size
                for _ in range(SHARES)
            ]
            kept.bytes.close()
        print(
            f"{name:8} {' '.join(f'{each:6.1f}' for each in shares_ms)}  CPU ms a batch, "
            f"{shares_ms[-1] / shares_ms[0]:.2f} of the first tenth",
            flush=True,
        )


if __name__ == "__main__":
    main()
