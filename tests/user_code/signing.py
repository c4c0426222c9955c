"""A class that needs a secret, and shows only what it made with it."""

from __future__ import annotations

import hashlib

from kafka_pipeline import Processor, ProcessorContext, Record


def signature(key: str, value: bytes) -> bytes:
    return hashlib.sha256(key.encode() + value).hexdigest().encode()


class Sign(Processor):
    """Forwards a hash of the key and each value."""

    def __init__(self, key: str) -> None:
        self._key = key

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(signature(self._key, record.value)))
