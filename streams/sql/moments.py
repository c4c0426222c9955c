"""Exact sums of numbers and of their products, from which variances and their like are computed.

A double is a whole number times a power of two. So the sums are whole numbers of any size, all of
them times one power of two: what is taken out leaves no trace, however large it was.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

_SIZE = struct.Struct(">I")


def products_for(moments: Iterable[str]) -> list[str]:
    """Return the products whose sums some central moments are computed from; see `Moments`."""
    found = {
        "".join(part)
        for each in moments
        for size in range(len(each) + 1)
        for part in combinations(each, size)
    }
    return sorted(found, key=lambda each: (len(each), each))


class Moments:
    """Sums over the rows of a group, which come and go.

    A product is named by the places of its factors among the values of a row: "0" is the sum of
    the first values, "01" that of products of the first and the second one, and "" the number of
    rows. A central moment is named in the same way: "00" is the sum of the squares of the
    differences from the mean.
    """

    def __init__(self, products: Sequence[str], stored: bytes | None) -> None:
        """Take what `stored` returned; `None` is a group without rows."""
        self._products = products
        self._scale, self._not_finite, *sums = [0] * (len(products) + 2)
        if stored is not None:
            self._scale, self._not_finite, *sums = _unpacked(stored)
        self._sums = sums

    def add(self, values: Sequence[float], change: int) -> None:
        """Add a row with these values, or take it out if the change is -1."""
        if not all(map(math.isfinite, values)):
            self._not_finite += change
            values = [0.0] * len(values)
        ratios = [each.as_integer_ratio() for each in values]
        # The denominator of a double is a power of two.
        powers = [denominator.bit_length() - 1 for _, denominator in ratios]
        self._rescale(max(powers))
        whole = {
            str(place): numerator << (self._scale - power)
            for place, ((numerator, _), power) in enumerate(zip(ratios, powers, strict=True))
        }
        for at, product in enumerate(self._products):
            self._sums[at] += change * math.prod(whole[factor] for factor in product)

    def stored(self) -> bytes | None:
        """Return the bytes of the sums, or `None` if no row has left anything in them."""
        if not self._not_finite and not any(self._sums):
            return None
        return b"".join(map(_packed, [self._scale, self._not_finite, *self._sums]))

    def central(self, moment: str) -> float:
        """Return a central moment, correctly rounded; `""` is the number of rows.

        With NaN or an infinite number in a row, it is NaN, as in Spark.
        """
        sums = dict(zip(self._products, self._sums, strict=True))
        count = sums[""]
        if not moment or count <= 0:
            return float(max(count, 0))
        if self._not_finite:
            return math.nan
        match len(moment):
            case 2:
                total = count * sums[moment] - sums[moment[0]] * sums[moment[1]]
            case 3:
                a, b, c = (sums[moment[:size]] for size in (1, 2, 3))
                total = count**2 * c - 3 * count * a * b + 2 * a**3
            case _:
                a, b, c, d = (sums[moment[:size]] for size in (1, 2, 3, 4))
                total = count**3 * d - 4 * count**2 * a * c + 6 * count * a**2 * b - 3 * a**4
        divisor = count ** (len(moment) - 1) << (self._scale * len(moment))
        try:
            return float(total / divisor)
        except OverflowError:
            return math.inf if total > 0 else -math.inf

    def _rescale(self, scale: int) -> None:
        more = scale - self._scale
        if more > 0:
            self._scale = scale
            self._sums = [
                each << (more * len(product))
                for product, each in zip(self._products, self._sums, strict=True)
            ]


def _packed(number: int) -> bytes:
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    return _SIZE.pack(len(data)) + data


def _unpacked(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        start = at + _SIZE.size
        at = start + int(_SIZE.unpack_from(data, at)[0])
        yield int.from_bytes(data[start:at], "big", signed=True)
