"""What the columns of a schema are called, without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable

from kafka_pipeline.streams.sql.spec import COLUMNS

Columns = Callable[[str], frozenset[str] | None]
"""Returns the columns of an input or a lookup table; `None` if they are not known. All names have
small letters."""

OF_JSON = frozenset(COLUMNS) - {"value"}
"""The columns of records whose values are JSON objects, next to the fields of these."""

_WORD = re.compile(r"`((?:[^`]|``)*)`|'[^']*'|\"[^\"]*\"|[<>(),]|[^\s`<>(),:]+")


def no_columns(name: str) -> frozenset[str] | None:
    """Know no columns of any table."""
    return None


def columns_of_schema(schema: str) -> frozenset[str]:
    """Return what the columns of a schema in Spark's DDL are called, in small letters."""
    found, depth, is_name = set[str](), 0, True
    for word in _WORD.finditer(schema):
        text = word[0]
        if not depth and (is_name or text == ","):
            if text != ",":
                found.add((text if word[1] is None else word[1].replace("``", "`")).lower())
            is_name = text == ","
        depth += (text in ("<", "(")) - (text in (">", ")"))
    return frozenset(found)
