"""The functions of column expressions over Arrow arrays.

Each function takes the parameters of a call and its operands: arrays, or one array and a scalar, of
the types that `columns.array_of` gives. It returns an array, or `None` where Arrow has nothing that
gives exactly what Python does. None of them raises for a record: `None` leaves that to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Operand: TypeAlias = Any
"""An array or a scalar of Arrow."""

Kernel: TypeAlias = Callable[..., Any]

_INT, _FLOAT, _STRING, _BINARY = pa.int64(), pa.float64(), pa.string(), pa.binary()
_NUMBERS = (_INT, _FLOAT)
_EXACT = 2**53
"""A float holds all whole numbers up to this one."""

_LEAST_INT = -(2**63)
_WHITE_SPACE = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
"""What Python strips of ASCII."""

_SPECIAL = frozenset(r"\.^$*+?{}[]|()")
"""The characters that mean something else in a regular expression."""

_FIRST_TIME_MS, _END_OF_TIMES_MS = -62_135_596_800_000, 253_402_300_800_000
"""The years 1 to 9999."""


def _extremes(operand: Operand) -> tuple[Any, Any]:
    """Return the least and the greatest item; (0, 0) without any."""
    if isinstance(operand, pa.Scalar):
        found = operand.as_py()
        return found, found
    both = pc.min_max(operand)
    return both["min"].as_py() or 0, both["max"].as_py() or 0


def _is_exact(operand: Operand) -> bool:
    """Return whether all items are the same as a float."""
    if operand.type == _FLOAT:
        return True
    least, most = _extremes(operand)
    return bool(least >= -_EXACT and most <= _EXACT)


def _is_numeric(a: Operand, b: Operand) -> bool:
    return a.type in _NUMBERS and b.type in _NUMBERS


def _as_floats(*operands: Operand) -> list[Operand]:
    return [pc.cast(each, _FLOAT, safe=False) for each in operands]


def _checked(kernel: Callable[..., pa.Array], *operands: Operand) -> pa.Array | None:
    """Return what a kernel gives for integers; `None` if a result has more than 64 bits."""
    try:
        return kernel(*operands)
    except pa.ArrowInvalid:
        return None


def _arithmetic(
    of_ints: Callable[..., pa.Array], of_floats: Callable[..., pa.Array]
) -> Callable[[Operand, Operand], pa.Array | None]:
    def run(a: Operand, b: Operand) -> pa.Array | None:
        if not _is_numeric(a, b):
            return None
        if a.type == b.type == _INT:
            return _checked(of_ints, a, b)
        return of_floats(*_as_floats(a, b))

    return run


def _add(a: Operand, b: Operand) -> pa.Array | None:
    if a.type == b.type == _STRING:
        return pc.binary_join_element_wise(a, b, "")
    return _arithmetic(pc.add_checked, pc.add)(a, b)


def _divide(a: Operand, b: Operand) -> pa.Array | None:
    if not _is_numeric(a, b) or _has_zero(b) or not (_is_exact(a) and _is_exact(b)):
        return None
    return pc.divide(*_as_floats(a, b))


def _has_zero(divisor: Operand) -> bool:
    if isinstance(divisor, pa.Scalar):
        return bool(divisor.as_py() == 0)
    return bool(pc.any(pc.equal(divisor, pa.scalar(0, divisor.type))).as_py())


def _quotient(a: Operand, b: Operand) -> tuple[pa.Array, pa.Array] | None:
    """Return the quotient rounded down, and the rest, of integers."""
    if not a.type == b.type == _INT or _has_zero(b) or _extremes(a)[0] == _LEAST_INT:
        return None
    quotient = pc.divide(a, b)
    rest = pc.subtract(a, pc.multiply(quotient, b))
    zero = pa.scalar(0, _INT)
    is_off = pc.and_(pc.not_equal(rest, zero), pc.xor(pc.less(rest, zero), pc.less(b, zero)))
    down = pc.if_else(is_off, pc.subtract(quotient, pa.scalar(1, _INT)), quotient)
    return down, pc.if_else(is_off, pc.add(rest, b), rest)


def _floor_divide(a: Operand, b: Operand) -> pa.Array | None:
    found = _quotient(a, b)
    return None if found is None else found[0]


def _modulo(a: Operand, b: Operand) -> pa.Array | None:
    found = _quotient(a, b)
    return None if found is None else found[1]


def _comparison(kernel: Callable[..., pa.Array], takes_bools: bool = False) -> Kernel:
    def run(a: Operand, b: Operand) -> pa.Array | None:
        if a.type == b.type:
            if a.type == pa.bool_() and not takes_bools:
                return None
            return kernel(a, b)
        if _is_numeric(a, b) and _is_exact(a) and _is_exact(b):
            return kernel(*_as_floats(a, b))
        return None

    return run


def _negate(a: pa.Array) -> pa.Array | None:
    if a.type == _INT:
        return _checked(pc.negate_checked, a)
    return pc.negate(a) if a.type == _FLOAT else None


def _abs(a: pa.Array) -> pa.Array | None:
    if a.type == _INT:
        return _checked(pc.abs_checked, a)
    return pc.abs(a) if a.type == _FLOAT else None


def _not(a: pa.Array) -> pa.Array | None:
    return pc.invert(a) if a.type == pa.bool_() else None


def _in(values: tuple[Any, ...], a: pa.Array) -> pa.Array | None:
    kind = {_INT: int, _STRING: str, _BINARY: bytes}.get(a.type)
    if kind is None or any(type(each) is not kind for each in values):
        return None
    if kind is int and not all(_LEAST_INT <= each < -_LEAST_INT for each in values):
        return None
    try:
        found = pc.is_in(a, value_set=pa.array(values, a.type))
    except UnicodeEncodeError:
        return None
    return pc.if_else(a.is_valid(), found, pa.scalar(None, pa.bool_()))


# Strings


def _of_text(kernel: Callable[..., pa.Array], only_ascii: bool = False) -> Kernel:
    """Return a kernel for strings; the characters outside ASCII may be left to Python."""

    def run(*arguments: Any) -> pa.Array | None:
        *parameters, a = arguments
        if a.type != _STRING:
            return None
        if only_ascii and not pc.all(pc.string_is_ascii(a), min_count=0).as_py():
            return None
        try:
            return kernel(a, *parameters)
        except UnicodeEncodeError:  # a lone surrogate in a parameter
            return None

    return run


def _length(a: pa.Array) -> pa.Array:
    return pc.utf8_length(a).cast(_INT)


def _contains(a: pa.Array, pattern: str) -> pa.Array | None:
    return pc.match_substring(a, pattern) if _is_plain(pattern) else None


def _replace_all(a: pa.Array, pattern: str, value: str) -> pa.Array | None:
    if not pattern or not _is_plain(pattern) or "\\" in value:
        return None
    return pc.replace_substring(a, pattern, value)


def _is_plain(pattern: str) -> bool:
    """Return whether a regular expression finds its own characters and nothing else."""
    return _SPECIAL.isdisjoint(pattern)


def _slice(a: pa.Array, offset: int, length: int | None) -> pa.Array | None:
    if offset < 0:
        return None
    return pc.utf8_slice_codeunits(a, offset, None if length is None else offset + length)


# Times


def _truncate(every_ms: int, a: pa.Array) -> pa.Array | None:
    if a.type != _INT or every_ms >= -_LEAST_INT:
        return None
    every = pa.scalar(every_ms, _INT)
    down = _floor_divide(a, every)
    return None if down is None else _checked(pc.multiply_checked, down, every)


def _of_clock(kernel: Callable[..., pa.Array]) -> Kernel:
    def run(a: pa.Array) -> pa.Array | None:
        if a.type != _INT:
            return None
        least, most = _extremes(a)
        if least < _FIRST_TIME_MS or most >= _END_OF_TIMES_MS:
            return None
        return kernel(a.cast(pa.timestamp("ms"))).cast(_INT)

    return run


def _to_string(a: pa.Array) -> pa.Array | None:
    if a.type == _STRING:
        return a
    return a.cast(_STRING) if a.type == _INT else None


KERNELS: Mapping[str, Kernel] = {
    "+": _add,
    "-": _arithmetic(pc.subtract_checked, pc.subtract),
    "*": _arithmetic(pc.multiply_checked, pc.multiply),
    "/": _divide,
    "//": _floor_divide,
    "%": _modulo,
    "==": _comparison(pc.equal, takes_bools=True),
    "!=": _comparison(pc.not_equal, takes_bools=True),
    "<": _comparison(pc.less),
    "<=": _comparison(pc.less_equal),
    ">": _comparison(pc.greater),
    ">=": _comparison(pc.greater_equal),
    "negate": _negate,
    "abs": _abs,
    "not": _not,
    "is_in": _in,
    "cast_str": _to_string,
    "str.to_uppercase": _of_text(pc.utf8_upper, only_ascii=True),
    "str.to_lowercase": _of_text(pc.utf8_lower, only_ascii=True),
    "str.strip_chars": _of_text(lambda a: pc.ascii_trim(a, _WHITE_SPACE), only_ascii=True),
    "str.len_chars": _of_text(_length),
    "str.starts_with": _of_text(pc.starts_with),
    "str.ends_with": _of_text(pc.ends_with),
    "str.contains": _of_text(_contains),
    "str.contains_literal": _of_text(pc.match_substring),
    "str.replace_all": _of_text(_replace_all),
    "str.replace_all_literal": _of_text(pc.replace_substring),
    "str.slice": _of_text(_slice),
    "dt.year": _of_clock(pc.year),
    "dt.month": _of_clock(pc.month),
    "dt.day": _of_clock(pc.day),
    "dt.weekday": _of_clock(partial(pc.day_of_week, count_from_zero=False)),
    "dt.hour": _of_clock(pc.hour),
    "dt.minute": _of_clock(pc.minute),
    "dt.second": _of_clock(pc.second),
    "dt.truncate": _truncate,
}
"""Functions that are not here are computed item by item in Python."""
