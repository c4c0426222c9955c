"""Rows of tables, and deletions of rows, for the chaos harness."""

from __future__ import annotations

import json
import re

from kafka_pipeline import Processor, Record

ROWS = 40
"""How many rows each key has, which its records change in turns."""
DELETED_EVERY = 7
"""Each so many-th record of a key deletes a row."""
_KEY = re.compile(rb"k\d\d")


def row_of(key: bytes, number: int) -> tuple[bytes, bytes | None]:
    """Return the key of the row that a key's n-th record changes, and the new value as JSON.

    The value is `None` for a deletion.
    """
    row_key = b"%s-%d" % (key, number % ROWS)
    if number % DELETED_EVERY == 0:
        return row_key, None
    note = None if number % 5 == 0 else f'note "{number}", \\ é\n'
    row = {"n": number, "note": note, "price": f"{number // 100}.{number % 100:02}"}
    return row_key, json.dumps(row).encode()


class Rows(Processor):
    """Makes a row or a deletion of each record of the writer; leaves out all others."""

    def __init__(self, base: int) -> None:
        """Records have `base` and their number as value."""
        self._base = base

    def process(self, record: Record) -> None:
        """Forward the row."""
        if record.key is not None and _KEY.fullmatch(record.key):
            key, value = row_of(record.key, int(record.value) - self._base)
            self.context.forward(record.with_key(key).with_value(value))
