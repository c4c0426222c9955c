"""How fast state comes back: `python -m benchmarks.restore [--records N]`.

One task restores one partition of a state topic that holds the records of `count` (keys of 8 bytes,
small numbers), on the broker's machine. The yardstick is a bare consumer that reads the same
records with the same batch size and does nothing with them; ratios are within a round. Then a
process that has restored everything is killed with SIGKILL, its store stays on disk, and more
records are written. The next restore must read only these. Every store is compared with a model.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, Row
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.taskmanager.restore import restore
from tests.engine import Engine

PIPELINE = "- {id: Counter, type: count, to: [sink]}\n"
IDENTITY = {"benchmark": "restore"}
FETCH_RECORDS = 20_000
WRITE_TIMEOUT_S = 120
STRIDE = 7_368_787
"""A large prime: its multiples visit the keys in no order, and every key before any repeats."""


def rows(first: int, stop: int, keys: int) -> Iterator[Row]:
    """Yield the counts of records `first` to `stop` for this many keys."""
    for number in range(first, stop):
        yield b"%08d" % (number * STRIDE % keys), b"%d" % (number // keys + 1)


def write(config: Config, topic: str, records: Iterator[Row]) -> None:
    """Append records to a state topic."""
    writer = BulkWriter(config, topic)
    writer.write(records)
    writer.flush(WRITE_TIMEOUT_S)


def bare_rate(config: Config, topic: str, records: int) -> float:
    """Return records per second of a consumer with the same batch size that ignores its records."""
    consumer = Consumer(
        {
            "bootstrap.servers": config.bootstrap_servers,
            "group.id": "bare",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    started = time.monotonic()
    seen = 0
    while seen < records:
        if consumer.poll(1) is not None:
            seen += 1 + len(consumer.consume(FETCH_RECORDS - 1, 0))
    took_s = time.monotonic() - started
    consumer.close()
    return records / took_s


def restored(config: Config, topic: str, directory: Path) -> tuple[RocksDBStore, int, float]:
    """Restore into a directory; return the store, the records read, and the seconds it took."""
    reader = PartitionReader(config, "restore")
    admin = Admin(config)
    started = time.monotonic()
    store = RocksDBStore(directory, IDENTITY)
    records = restore(store, (topic, 0), reader, admin, lambda _restored, _total: None)
    took_s = time.monotonic() - started
    reader.close()
    return store, records, took_s


def verify(store: RocksDBStore, records: int, keys: int) -> None:
    """Exit with an error unless the store matches the topic."""
    last = rows(max(records - keys, 0), records, keys)
    wrong = [key for key, value in last if store.get(key or b"") != value]
    if wrong:
        sys.exit(f"{len(wrong)} keys differ from the model")


def restore_and_die(config: Config, topic: str, directory: Path) -> None:
    """Restore, and end without closing anything."""
    restored(config, topic, directory)
    os.kill(os.getpid(), signal.SIGKILL)


def measure(config: Config, folder: Path, topic: str, records: int, keys: int) -> None:
    """Print the rate of one restore of everything, and the rate of the bare consumer."""
    bare = bare_rate(config, topic, records)
    store, read, took_s = restored(config, topic, folder)
    verify(store, read, keys)
    store.close()
    rate = read / took_s
    print(f"{keys:10,} {bare:12,.0f} {rate:12,.0f} {rate / bare:9.2f}  exact", flush=True)


def crash(config: Config, folder: Path, topic: str, records: int, keys: int, new: int) -> None:
    """Print what is read after a crash if `new` records follow those in the store."""
    # Do not fork: this process has Kafka clients, whose threads and locks would not survive it.
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=restore_and_die, args=(config, topic, folder))
    process.start()
    process.join()
    if process.exitcode != -signal.SIGKILL:
        sys.exit(f"the process that should restore ended with {process.exitcode}")
    write(config, topic, rows(records, records + new, keys))
    store, read, took_s = restored(config, topic, folder)
    verify(store, records + new, keys)
    store.close()
    print(
        f"\nAfter kill -9, with {records:,} of {records + new:,} records in the store: "
        f"{read:,} read, in {took_s:.2f} s, exact"
    )
    if read != new:
        sys.exit(f"{new:,} should have been read")


def main() -> None:
    """Measure, verify, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, nargs="*", default=[2_000_000, 100_000])
    parser.add_argument("--new", type=int, default=10_000, help="written after the crash")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = LocalCluster(folder / "kafka")
        cluster.start()
        try:
            job = Engine(
                folder, cluster.bootstrap_servers, "bench", "- {id: S, type: count, to: [sink]}"
            )
            run(job.config, folder, arguments)
        finally:
            cluster.stop()


def run(config: Config, folder: Path, arguments: argparse.Namespace) -> None:
    """Fill a topic for each number of keys; measure all, round by round; then crash."""
    topics = {keys: f"state_{keys}" for keys in arguments.keys}
    Admin(config).ensure_topics([TopicSpec(topic, 1, 1) for topic in topics.values()])
    for keys, topic in topics.items():
        write(config, topic, rows(0, arguments.records, keys))
    print(f"{'keys':>10} {'bare/s':>12} {'restore/s':>12} {'of bare':>9}  store")
    for number in range(arguments.rounds):
        for keys, topic in topics.items():
            measure(config, folder / f"{number}_{keys}", topic, arguments.records, keys)
    keys, topic = next(iter(topics.items()))
    crash(config, folder / "crash", topic, arguments.records, keys, arguments.new)


if __name__ == "__main__":
    main()
