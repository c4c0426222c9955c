"""`type: sum`: adds a constant to every value."""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence

from kafka_pipeline.streams.processor import BatchProcessor, RecordRejectedError
from kafka_pipeline.streams.record import Batch

_BLOCK = 500
"""How many values are converted at a time; if one is not an integer, few conversions are wasted."""

_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")


class SumProcessor(BatchProcessor):
    """Reads each value as a decimal integer and emits the integer plus `constant`, as text.

    Accepts a sign and surrounding blanks; emits the canonical form (`b" +07 "` plus 1 is `b"8"`).
    Integers have any size: the original wrapped at 32 bits, this one does not. A value that is
    null, empty or anything but an integer is rejected.
    """

    def __init__(self, constant: int = 1) -> None:
        self._constant = constant

    def process(self, batch: Batch) -> None:
        """Emit the sums, up to the first value that is not an integer."""
        sums: list[bytes] = []
        reason = self._add(batch.values, sums)
        if sums:
            self.context.forward(batch.head(len(sums)).with_values(sums))
        if reason is not None:
            raise RecordRejectedError(reason, batch, len(sums))

    def _add(self, values: Sequence[bytes | None], sums: list[bytes]) -> str | None:
        """Append the sums, up to the first non-integer; return what is wrong with that value."""
        constant = self._constant
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            try:
                added = [b"%d" % (number + constant) for number in map(int, block)]  # type: ignore[arg-type]
                is_plain = b"_" not in b"".join(block)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                is_plain = False
            if is_plain:
                sums += added
            elif (reason := self._add_each(block, sums)) is not None:
                return reason
        return None

    def _add_each(self, values: Sequence[bytes | None], sums: list[bytes]) -> str | None:
        """Do what `_add` does, for values that may not be integers or may be very long integers."""
        for value in values:
            try:
                added = b"%d" % (int(value) + self._constant)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                if value is None or not _INTEGER.fullmatch(value):
                    return "the value is not an integer" if value else "the value is empty"
                added = _sum_of_long(value, self._constant)
            if b"_" in value:  # type: ignore[operator]
                return "the value is not an integer"
            sums.append(added)
        return None


def _sum_of_long(value: bytes, constant: int) -> bytes:
    """Add to an integer with more digits than Python converts, 4,300 by default.

    Python's conversion takes time that grows with the square of the number of digits: half a minute
    for 1 MB, in which a TaskManager would be taken for dead. `decimal` takes a few ms.
    """
    exact = decimal.Context(
        prec=max(len(value), constant.bit_length()) + 2,
        Emax=decimal.MAX_EMAX,
        Emin=decimal.MIN_EMIN,
        traps=[decimal.Inexact, decimal.InvalidOperation],
    )
    return str(exact.add(decimal.Decimal(value.decode()), decimal.Decimal(constant))).encode()
