"""Stores in RocksDB that tests open again and again."""

from __future__ import annotations

from pathlib import Path

from kafka_pipeline.streams.stores.rocksdb import RocksDBStore

IDENTITY = {"topic": "state_topic_Counter", "partition": "0", "cluster": "abc"}


def reopened(store: RocksDBStore, directory: Path) -> RocksDBStore:
    store.close()
    return RocksDBStore(directory, IDENTITY)
