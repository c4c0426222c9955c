"""Whether the groups that a query keeps slow its batches down: `python -m benchmarks.kept_groups`.

A query counts and sums by key, in one process without Kafka: Spark, and RocksDB as the engine uses
it. Its state grows (`--groups N…`). At each size, batches of 50,000 records of 10,000 keys are
timed; the keys are drawn from all groups. So what grows is only what a batch does not touch. The
benchmark compares the results with a model. The query runs without windows, and with those of an
hour.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.lone_task import lasting_queries, lone_task, results_of
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.units import group_of

SIZES = (10_000, 100_000, 1_000_000)
BATCH_RECORDS = 50_000
BATCH_KEYS = 10_000
BATCHES = 20
COMMIT_BATCHES = 2
START_MS = 1_700_000_000_000
CONFIG = """
server_ip: 127.0.0.1
server_port: 9092
tm_number: 1
parallelism: 1
replication_factor: 1
source_topic: source
sink_topic: sink
"""
QUERIES = {
    "without windows": "GROUP BY key",
    "in windows": "GROUP BY key, window(timestamp, '1 hour')",
}
PIPELINE = """
- id: Counted
  type: sql
  format: json
  schema: n INT
  query: SELECT key, count(*) AS records, sum(n) AS total FROM input {groups}
  to: [sink]
"""


class Query:
    """A task with a query, its store, and the model of its groups."""

    def __init__(self, folder: Path, groups: str, opened: ExitStack) -> None:
        """Start the task; `opened` closes it."""
        config, pipeline = folder / "config.yaml", folder / "pipeline.yaml"
        config.write_text(CONFIG)
        pipeline.write_text(PIPELINE.format(groups=groups))
        loaded = load_config(config)
        code = UserCode.of(loaded)
        (unit,) = replicas(load_pipeline(pipeline, loaded))
        group = group_of(unit, code, lasting_queries(code, loaded))
        self._stores = {store.name: store.open(folder / store.name, {}) for store in group.stores}
        for store in self._stores.values():
            opened.callback(store.close)
        self._task = lone_task(group, self._stores)
        opened.callback(self._task.close)
        self._model = Counter[int]()
        self._offset = 0
        self._uncommitted = 0

    def run(self, keys: Sequence[int]) -> float:
        """Process a record for each key, commit now and then, and return how long it took.

        Exits if a result differs from the model.
        """
        size = len(keys)
        batch = RecordBatch(
            "source",
            0,
            [b"%016d" % key for key in keys],
            [b'{"n": 3}'] * size,
            [START_MS] * size,
            range(self._offset, self._offset + size),
        )
        self._offset += size
        began_s = time.perf_counter()
        outputs = results_of(self._task, batch)
        self._uncommitted += 1
        if self._uncommitted == COMMIT_BATCHES:
            self._uncommitted = 0
            for store in self._stores.values():
                store.commit(self._offset)
        taken_s = time.perf_counter() - began_s
        self._model.update(keys)
        found = [
            (int(key or b""), json.loads(value or b""))
            for output in outputs
            if isinstance(output, OutputColumns)
            for key, value in zip(output.keys, output.values, strict=True)
        ]
        counts = {key: self._model[key] for key in set(keys)}
        wanted = {key: {"records": count, "total": 3 * count} for key, count in counts.items()}
        if len(found) != len(wanted) or dict(found) != wanted:
            sys.exit("the results differ from the model")
        return taken_s


def main() -> None:
    """Measure, and print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, nargs="+", default=SIZES, metavar="N")
    sizes = sorted(parser.parse_args().groups)
    for name, groups in QUERIES.items():
        with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
            query = Query(Path(folder), groups, opened)
            random_ = random.Random(1)
            full, first_s = 0, 0.0
            for size in sizes:
                for start in range(full, size, BATCH_KEYS):
                    query.run(range(start, min(start + BATCH_KEYS, size)))
                full = size
                taken_s = []
                for _ in range(BATCHES):
                    keys = random_.sample(range(size), BATCH_KEYS)
                    taken_s.append(query.run(random_.choices(keys, k=BATCH_RECORDS)))
                middle_s = median(taken_s)
                first_s = first_s or middle_s
                print(
                    f"{name}, {size:9,} groups: {1000 * middle_s:5.0f} ms a batch "
                    f"({1000 * min(taken_s):.0f} to {1000 * max(taken_s):.0f}), "
                    f"{middle_s / first_s:.2f} of the first",
                    flush=True,
                )
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB at most in Python")


if __name__ == "__main__":
    main()
