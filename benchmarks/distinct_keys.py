"""Whether state slows a task down as it grows: `python -m benchmarks.distinct_keys [--keys N]`.

`count` gets records with keys that it has never seen, so it looks up each key in RocksDB and writes
it. There is no Kafka. For each tenth of the records, the benchmark measures the CPU time of the
nodes and of the store's commits. It shows the time of the task's own thread, which limits the
task's rate, and of all threads, including those in which RocksDB compacts its files. At the end, it
compares the store with a model, and shows the memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.hot_path import group_of
from benchmarks.lone_task import lone_task, results_of
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.builtin.count import COUNTS, CountProcessor

BATCH_RECORDS = 10_000
COMMIT_BATCHES = 3
STRIDE = 7_368_787
"""A large prime: its multiples visit the keys in no order, and every key before any repeats."""
SHARES = 10


def batch_of(first: int, keys: int) -> RecordBatch:
    """Return the records from number `first` on."""
    numbers = range(first, first + BATCH_RECORDS)
    return RecordBatch(
        "source",
        0,
        [b"%016d" % (number * STRIDE % keys) for number in numbers],
        [b"value"] * BATCH_RECORDS,
        [1_700_000_000_000 + number for number in numbers],
        numbers,
    )


def main() -> None:
    """Measure, and print a line for each tenth."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=5_000_000)
    keys = parser.parse_args().keys // BATCH_RECORDS * BATCH_RECORDS
    group = group_of(CountProcessor)
    with tempfile.TemporaryDirectory() as folder:
        store = COUNTS.open(Path(folder), {})
        task = lone_task(group, {COUNTS.name: store})
        own_s, all_s = [0.0] * SHARES, [0.0] * SHARES
        for number in range(keys // BATCH_RECORDS):
            first = number * BATCH_RECORDS
            batch = batch_of(first, keys)
            began_s = time.thread_time(), time.process_time()
            results_of(task, batch)
            if number % COMMIT_BATCHES == COMMIT_BATCHES - 1:
                store.commit(first)
            own_s[first * SHARES // keys] += time.thread_time() - began_s[0]
            all_s[first * SHARES // keys] += time.process_time() - began_s[1]
        store.commit(keys)
        with store.scan(b"", None) as entries:
            if sum(value == b"1" for _, value in entries) != keys:
                sys.exit("the store differs from the model")
        task.close()
        store.close()
    print(f"{'':18}  {'own thread':>18}  {'all threads':>18}")
    for share, seconds in enumerate(zip(own_s, all_s, strict=True), 1):
        line = f"{keys * share // SHARES:12,} keys"
        for each_s, first_s in zip(seconds, (own_s[0], all_s[0]), strict=True):
            line += f"  {keys / SHARES / each_s:10,.0f}/s {first_s / each_s:6.2f}"
        print(line)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB at most")


if __name__ == "__main__":
    main()
