"""The columns of random inputs, and random values for them as they are in JSON."""

from __future__ import annotations

import random
from typing import Any

COLUMNS = {
    "s": "STRING",
    "t": "STRING",
    "n": "INT",
    "m": "BIGINT",
    "x": "DOUBLE",
    "d": "DECIMAL(10,2)",
    "z": "DECIMAL(5,1)",
    "e": "DECIMAL(30,10)",
    "b": "BOOLEAN",
    "at": "TIMESTAMP",
    "day": "DATE",
    "tags": "ARRAY<STRING>",
    "nums": "ARRAY<INT>",
    "o": "STRUCT<a: INT, b: STRING>",
}
"""All columns that an input may have, by name."""

_FEW = {
    "STRING": ("a", "b", "é", "Ulm ", "日本", "", "10", "a,b", "x'y", "😀 z"),
    "INT": (0, 1, 2, 3, -1, 7),
    "BIGINT": (0, 1, 2, -5, 40, 1_000_000_007),
    "DOUBLE": (0.0, -0.0, 0.25, 1.5, -2.75, 100.0, 4096.5),
    "DECIMAL(10,2)": ("0.00", "1.25", "-3.75", "0.01", "12.5", "7"),
    "DECIMAL(5,1)": ("0.0", "1.5", "-2.5", "0.1", "7"),
    "DECIMAL(30,10)": ("0", "1.0000000001", "-2.5", "3.25"),
    "TIMESTAMP": (
        "1970-01-01T00:00:00Z",
        "2024-02-29T23:59:59.999Z",
        "2024-03-31T01:30:00+01:00",
        "2024-03-01T00:00:00.123456Z",
    ),
    "DATE": ("1970-01-01", "2024-02-29", "2024-12-31", "2023-01-01"),
}
_EDGES = {
    "STRING": ("null", "\\", '"', "\n", "a\u0000b", "ß" * 40, "1e5", "2024-02-30", "%_"),
    "INT": (2**31 - 1, -(2**31)),
    "BIGINT": (2**53 + 1, -(2**53) - 1),
    "DOUBLE": (2.0**52, -(2.0**40), 0.5**30),
    "DECIMAL(10,2)": ("99999999.99", "-99999999.99", "1.2"),
    "DECIMAL(5,1)": ("9999.9", "-9999.9"),
    "DECIMAL(30,10)": ("99999999999999999999.9999999999", "-99999999999999999999.9999999999"),
    "TIMESTAMP": (
        "1969-12-31T23:59:59.999Z",
        "1900-01-01T00:00:00Z",
        "2262-04-11T23:47:16Z",
        "9999-12-31T23:59:59Z",
    ),
    "DATE": ("1582-10-15", "1969-12-31", "9999-12-31"),
}


class Raw(str):
    """A number that is written into the JSON digit by digit."""


def value_of(type_: str, chance: random.Random) -> Any:
    """Return a value of a type: often one of a few, sometimes one at the edge, or null."""
    if chance.random() < 0.12:
        return None
    if type_ == "BOOLEAN":
        return chance.random() < 0.5
    if type_.startswith("ARRAY<"):
        return [value_of(type_[6:-1], chance) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    if type_.startswith("STRUCT<"):
        return {"a": value_of("INT", chance), "b": value_of("STRING", chance)}
    found = chance.choice(_EDGES[type_] if chance.random() < 0.06 else _FEW[type_])
    return Raw(found) if type_.startswith("DECIMAL") else found


def object_of(schema: dict[str, str], chance: random.Random) -> dict[str, Any]:
    """Return the fields of a record; some are missing."""
    return {
        name: value_of(type_, chance) for name, type_ in schema.items() if chance.random() < 0.95
    }
