"""Bytes that sort as values do, by which a store finds the smallest and the largest one.

The order is that of Spark: text by its bytes, false before true, and NaN after all numbers. There
must be one zero and one NaN; see `Catalyst.normalized`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.streams.sql.columns import binary_items

_END = b"\0\0"


def has_order(type_: pa.DataType) -> bool:
    """Whether there are bytes for values of a type; see `SortKeys`."""
    return bool(
        _is_text(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_date(type_)
        or pa.types.is_timestamp(type_)
    )


class SortKeys:
    """Makes bytes of the values of one type, none of which are the beginning of others."""

    def __init__(self, type_: pa.DataType) -> None:
        """Take a type of numbers, times, booleans, strings or binary."""
        self._type = type_
        self._is_text = _is_text(type_)
        self._width = 0 if self._is_text else max(int(type_.bit_width) // 8, 1)

    def of(self, column: pa.Array) -> list[bytes]:
        """Return the bytes of values, none of which may be null."""
        if self._is_text:
            items = binary_items(pa.chunked_array([column.cast(pa.binary())]))
            return [(item or b"").replace(b"\0", b"\0\xff") + _END for item in items]
        data, width = self._ordered(column).tobytes(), self._width
        return [data[at : at + width] for at in range(0, len(data), width)]

    def end(self, data: bytes, start: int) -> int:
        """Return where the bytes of the value end that begin at `start`."""
        if self._is_text:
            return data.index(_END, start) + len(_END)
        return start + self._width

    def _ordered(self, column: pa.Array) -> npt.NDArray[np.uint8]:
        """Return a row of bytes for each value."""
        if pa.types.is_boolean(self._type):
            flags = np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)
            return flags.astype(np.uint8).reshape(-1, 1)
        width = self._width
        data = np.frombuffer(column.buffers()[1] or b"", np.uint8)
        start = column.offset * width
        found = data[start : start + len(column) * width].reshape(-1, width)[:, ::-1].copy()
        if not pa.types.is_floating(self._type):
            found[:, 0] ^= 0x80
            return found
        is_negative = found[:, 0] >= 0x80
        found[is_negative] ^= 0xFF
        found[~is_negative, 0] |= 0x80
        return found


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))
