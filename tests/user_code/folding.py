"""A processor whose results show which records it has seen, and in which order."""

from __future__ import annotations

from zlib import crc32

from streams import Processor, ProcessorContext, Record

COMMIT_EVERY = 7


def fold(digest: int, value: bytes) -> int:
    """Return what becomes of a key's digest with one more value."""
    return crc32(value, digest)


class Folder(Processor):
    """Keeps a digest of all values of each key, and forwards each value with the digest so far."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.digests = context.get_state_store("Digests")

    def process(self, record: Record) -> None:
        digest = fold(int(self.digests.get(record.key) or 0), record.value)
        self.digests.put(record.key, b"%d" % digest)
        self.context.forward(record.with_value(b"%b %d" % (record.value, digest)))
        if digest % COMMIT_EVERY == 0:
            self.context.commit()
