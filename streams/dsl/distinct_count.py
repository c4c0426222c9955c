"""Counts different values approximately: a HyperLogLog, exact for few values.

The estimator is that of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog
sketches" (2017), which needs no tables against bias.
"""

from __future__ import annotations

import json
import math
from hashlib import blake2b

from kafka_pipeline.common.json_text import coerced_names
from kafka_pipeline.streams.errors import StreamsError

_PRECISION = 12
_REGISTERS = 1 << _PRECISION
_RANKS = 64 - _PRECISION + 1
"""The largest value of a register."""

EXACT = 256
"""The largest number of hashes to keep before a sketch switches to registers."""

_HASH_BYTES = 8
_ALPHA = 1 / (2 * math.log(2))


class DistinctCount:
    """A sketch of a set of values.

    `state` is its bytes: sorted hashes of 8 bytes each, or 4,096 registers of one byte each, which
    are told apart by their length.
    """

    def __init__(self, state: bytes | None = None) -> None:
        self.state = state or b""

    def add(self, value: object) -> None:
        """Add a value. Raises `StreamsError` for one that has no hash here."""
        self._add_hash(blake2b(_canonical(value), digest_size=_HASH_BYTES).digest())

    def merge(self, other: DistinctCount) -> None:
        """Add the values of another sketch."""
        if not other._is_exact:
            self._become_registers()
            self.state = bytes(map(max, self.state, other.state))
            return
        for each in other._hashes():
            self._add_hash(each)

    def estimate(self) -> int:
        """Return about how many different values were added."""
        if self._is_exact:
            return len(self.state) // _HASH_BYTES
        counts = [self.state.count(rank) for rank in range(_RANKS + 1)]
        z = _REGISTERS * _tau(1 - counts[_RANKS] / _REGISTERS)
        for rank in range(_RANKS - 1, 0, -1):
            z = 0.5 * (z + counts[rank])
        z += _REGISTERS * _sigma(counts[0] / _REGISTERS)
        return round(_ALPHA * _REGISTERS * _REGISTERS / z)

    @property
    def _is_exact(self) -> bool:
        return len(self.state) <= EXACT * _HASH_BYTES

    def _hashes(self) -> list[bytes]:
        state = self.state
        return [state[at : at + _HASH_BYTES] for at in range(0, len(state), _HASH_BYTES)]

    def _add_hash(self, hashed: bytes) -> None:
        if self._is_exact:
            hashes = {*self._hashes(), hashed}
            if len(hashes) <= EXACT:
                self.state = b"".join(sorted(hashes))
                return
            self._become_registers()
        index, rank = _place(hashed)
        if self.state[index] < rank:
            self.state = self.state[:index] + bytes((rank,)) + self.state[index + 1 :]

    def _become_registers(self) -> None:
        if not self._is_exact:
            return
        registers = bytearray(_REGISTERS)
        for each in self._hashes():
            index, rank = _place(each)
            registers[index] = max(registers[index], rank)
        self.state = bytes(registers)


def _place(hashed: bytes) -> tuple[int, int]:
    """Return the register of a hash, and the rank in it: its leading zeros and one."""
    number = int.from_bytes(hashed, "big")
    rest = number & ((1 << (64 - _PRECISION)) - 1)
    return number >> (64 - _PRECISION), _RANKS - rest.bit_length()


def _canonical(value: object) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode(errors="surrogatepass")
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return b"i%x" % value
    if isinstance(value, float):
        return b"d" + repr(value).encode()
    try:
        text = json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise StreamsError(
            f"this takes what JSON can hold, and bytes, not a {type(value).__name__}"
        ) from None
    for name in coerced_names(value, text):
        raise StreamsError(
            f"this takes what JSON can hold: names are strings, not a {type(name).__name__}"
        )
    return b"j" + text.encode()


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    y, z, before = 1.0, 1 - x, -1.0
    while z != before:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1 - x) ** 2 * y
    return z / 3
