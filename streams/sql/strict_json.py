"""Finds values that are not JSON objects as RFC 8259 has them.

Spark's reader stops after the first value, reads a blank value as null and an array as its first
item, and takes single quotes. So values are looked at before Spark reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from json import JSONDecodeError

import pyarrow as pa

from kafka_pipeline.common.arrow_json import FEWEST_RECORDS, joined_objects, read_objects
from kafka_pipeline.common.json_text import decode

NOT_AN_OBJECT = "the value is not a JSON object"

_NOTHING = pa.schema([])
_AT_ONCE = 1000
"""After a wrong value, the rest of its batch comes again: to look at all of it each time takes too
long."""


def count_right(values: Sequence[bytes | None]) -> tuple[int, str]:
    """Return how many values come before the first that is not a JSON object, and what is wrong.

    Null is right. The reason is empty if all are.
    """
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        if len(part) >= FEWEST_RECORDS and _are_objects(part):
            continue
        for index, value in enumerate(part, start):
            if value is not None and (wrong := problem(value)):
                return index, wrong
    return len(values), ""


def problem(value: bytes) -> str:
    """Return why a value is not a JSON object, or "". The words quote nothing of it."""
    try:
        return "" if isinstance(decode(value.decode()), dict) else NOT_AN_OBJECT
    except JSONDecodeError as error:
        why = error.msg.removesuffix(" at").removesuffix(" starting").lower()
        return f"{NOT_AN_OBJECT}: {why}"
    except UnicodeDecodeError:
        return "the value is not UTF-8"
    except RecursionError:
        return f"{NOT_AN_OBJECT}: nested too deeply"
    except ValueError as error:
        too_long = str(error).startswith("Exceeds the limit")
        return f"{NOT_AN_OBJECT}: {'a number has too many digits' if too_long else error}"


def _are_objects(values: Sequence[bytes | None]) -> bool:
    """Whether Arrow's reader, which is strict, finds one object in each value.

    It is several times as fast as Python's. Where it is not sure, the answer is no.
    """
    joined = joined_objects(values)
    if joined is None:
        return False
    try:
        table = read_objects(joined, _NOTHING)
    except pa.ArrowException:
        return False
    return len(table) == len(values)
