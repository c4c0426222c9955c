"""Whether DISTINCT slows a query down as its groups grow: `python -m benchmarks.distinct_values`.

Nexmark's q16 counts the distinct bidders and auctions of each channel and day, in all and by price.
Both of its tasks run in one process without Kafka, with Spark, and with RocksDB as the engine uses
it. All bids are of one day and of `--channels`, so the groups grow with each batch: bidders and
auctions are drawn from `--values` each. For each tenth of the batches, the benchmark prints the CPU
time for a record, of Python and of the JVM. It compares the last results with a model.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pyspark import SparkContext

from benchmarks.kept_groups import CONFIG, START_MS
from benchmarks.lone_task import lasting_queries, lone_task, results_of
from benchmarks.resources import process_cpu_s
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.units import group_of
from kafka_pipeline.streams.sql.local import LocalQueries

QUERY = Path(__file__).parent / "nexmark" / "queries" / "q16.yaml"
SHARES = 10
COMMIT_BATCHES = 2


class Stage:
    """A task with its stores."""

    def __init__(
        self,
        unit: ProcessorReplica,
        folder: Path,
        code: UserCode,
        queries: LocalQueries,
        opened: ExitStack,
    ) -> None:
        """Start the task; `opened` closes it."""
        group = group_of(unit, code, queries)
        self._stores = {store.name: store.open(folder / store.name, {}) for store in group.stores}
        for store in self._stores.values():
            opened.callback(store.close)
        (self._topic,) = unit.in_topics
        self._task = lone_task(group, self._stores, [(self._topic, 0)])
        opened.callback(self._task.close)
        self._offset = 0
        self._batches = 0

    def run(self, keys: Sequence[bytes], values: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Process records, commit now and then, and return the keys and values of the results."""
        size = len(keys)
        offsets = range(self._offset, self._offset + size)
        self._offset += size
        batch = RecordBatch(self._topic, 0, [*keys], [*values], [START_MS] * size, offsets)
        outputs = results_of(self._task, batch)
        self._batches += 1
        if self._batches % COMMIT_BATCHES == 0:
            for store in self._stores.values():
                store.commit(self._offset)
        return [
            (key or b"", value or b"")
            for output in outputs
            if isinstance(output, OutputColumns)
            for key, value in zip(output.keys, output.values, strict=True)
        ]


class Model:
    """The distinct bidders and auctions of each channel, in all and by price."""

    def __init__(self) -> None:
        self._bids = defaultdict[str, int](int)
        self._seen = defaultdict[tuple[str, str], set[int]](set)

    def add(self, bid: dict[str, int | str]) -> None:
        channel, price = str(bid["channel"]), int(bid["price"])
        rank = 1 if price < 10_000 else 2 if price < 1_000_000 else 3
        self._bids[channel] += 1
        for what in ("bidder", "auction"):
            for part in ("total", f"rank{rank}"):
                self._seen[channel, f"{part}_{what}s"].add(int(bid[what]))

    def require(self, found: dict[str, dict[str, int]]) -> None:
        """Exit if the last results differ."""
        for channel, bids in self._bids.items():
            wanted = {name: len(seen) for (of, name), seen in self._seen.items() if of == channel}
            wanted["total_bids"] = bids
            if {name: found[channel][name] for name in wanted} != wanted:
                sys.exit("the results differ from the model")


def main() -> None:
    """Measure, and print a line for each tenth."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=50, metavar="N")
    parser.add_argument("--records", type=int, default=20_000, metavar="N")
    parser.add_argument("--values", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--channels", type=int, default=4, metavar="N")
    options = parser.parse_args()
    batches = max(options.batches // SHARES, 1) * SHARES
    random_, model, last = random.Random(1), Model(), dict[str, dict[str, int]]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG)
        loaded = load_config(config)
        code = UserCode.of(loaded)
        queries = lasting_queries(code, loaded)
        rows, groups = (
            Stage(unit, Path(folder) / str(unit.task), code, queries, opened)
            for unit in replicas(load_pipeline(QUERY, loaded))
        )
        java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
        print(f"{'records':>10}  {'Python':>9}  {'JVM':>9}   CPU µs for a record")
        for share in range(SHARES):
            python_s = java_s = 0.0
            for _ in range(batches // SHARES):
                bids = [bid(random_, options) for _ in range(options.records)]
                values = [json.dumps(each).encode() for each in bids]
                began_s = time.process_time(), process_cpu_s(java)
                sent = rows.run([b"k"] * len(values), values)
                found = groups.run([key for key, _ in sent], [value for _, value in sent])
                python_s += time.process_time() - began_s[0]
                java_s += process_cpu_s(java) - began_s[1]
                for each in bids:
                    model.add(each)
                results = [json.loads(value) for _, value in found]
                last |= {result["channel"]: result for result in results}
            size = options.records * batches // SHARES
            print(
                f"{size * (share + 1):10,}  {1e6 * python_s / size:9.1f}  "
                f"{1e6 * java_s / size:9.1f}",
                flush=True,
            )
        model.require(last)


def bid(random_: random.Random, options: argparse.Namespace) -> dict[str, int | str]:
    """Return a bid of one of the channels."""
    return {
        "auction": random_.randrange(options.values),
        "bidder": random_.randrange(options.values),
        "price": int(100 * 10 ** (6 * random_.random())),
        "channel": f"channel-{random_.randrange(options.channels)}",
    }


if __name__ == "__main__":
    main()
