"""Processors whose results show which records they have seen, and in which order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal
from zlib import crc32

from kafka_pipeline import (
    AsyncProcessor,
    Processor,
    ProcessorContext,
    Record,
    TopologyBuilder,
    serdes,
    stores,
)

COMMIT_EVERY = 7


def while_called() -> None:
    """Be called in the middle of each call; a test may put something else here."""


def answer_s() -> float:
    """Return how long the answer to an asynchronous call takes; a test may know better."""
    return 0.0


def fold(digest: int, value: bytes) -> int:
    """Return what becomes of a key's digest with one more value."""
    return crc32(value, digest)


class Folder(Processor):
    """Keeps a digest of all values of each key, and forwards each value with the digest so far."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.digests = context.get_state_store("Digests")
        while_called()

    def process(self, record: Record) -> None:
        digest = fold(int(self.digests.get(record.key) or 0), record.value)
        self.digests.put(record.key, b"%d" % digest)
        while_called()
        self.context.forward(record.with_value(b"%b %d" % (record.value, digest)))
        if digest % COMMIT_EVERY == 0:
            self.context.commit()


class Asker(AsyncProcessor):
    """Passes on what it gets when somebody has answered; rejects what is not a number."""

    max_in_flight = 5
    timeout_ms = 2**31 - 1

    def __init__(self, ordered: Literal[True, "key"] = True) -> None:
        self.ordered = ordered

    async def process(self, record: Record) -> Record:
        await asyncio.sleep(answer_s())
        int(record.value)
        return record


def asked_and_folded(topic: str, ordered: Literal[True, "key"]) -> TopologyBuilder:
    """Return an `Asker` with a `Folder` behind it."""
    builder = TopologyBuilder()
    builder.add_source("Source", topic)
    builder.add_processor("Ask", partial(Asker, ordered), ["Source"])
    builder.add_processor("Fold", Folder, ["Ask"])
    builder.add_state_store(stores.key_value("Digests", serdes.bytes, serdes.bytes), ["Fold"])
    builder.add_sink("Sink", "out", ["Fold"])
    return builder
