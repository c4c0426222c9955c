"""`type: sum`: adds a constant to every value."""

from __future__ import annotations

import sys

from common.record_batch import RecordBatch
from streams.results import Results


class SumProcessor:
    """Reads each value as a decimal integer and emits the integer plus `constant`, as text.

    Accepts a sign and surrounding blanks; emits the canonical form (`b" +07 "` plus 1 is `b"8"`).
    Integers have any size: the original wrapped at 32 bits, this one does not. A value that is
    null, empty or anything but an integer is rejected.
    """

    def __init__(self, constant: int = 1) -> None:
        self._constant = constant
        # Python refuses integers of more than 4,300 digits unless told otherwise.
        sys.set_int_max_str_digits(0)

    def process(self, batch: RecordBatch, start: int) -> Results:
        """Return the sums from `start` on, up to the first value that is no integer."""
        constant = self._constant
        sums: list[bytes | None] = []
        append = sums.append
        for value in batch.values[start:] if start else batch.values:
            try:
                append(b"%d" % (int(value) + constant))  # type: ignore[arg-type]
            except (TypeError, ValueError):
                return Results(sums, "the value is no integer" if value else "the value is empty")
            if b"_" in value:  # type: ignore[operator]
                sums.pop()
                return Results(sums, "the value is no integer")
        return Results(sums)
