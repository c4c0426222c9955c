"""Types of a query's columns, as JSON of Spark, with values as the JSON of rows has them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

STRUCT_X = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True}]}
STRUCT_Y = {"type": "struct", "fields": [{"name": "y", "type": "string", "nullable": True}]}
MEMBER = {
    "type": "struct",
    "fields": [{"name": "member_int", "type": "integer", "nullable": True}],
}
ID = "01234567-89ab-cdef-0123-456789abcdef"
COLUMNS: list[tuple[Any, list[Any]]] = [
    ("void", [None]),
    ("boolean", [True]),
    ("byte", [1]),
    ("integer", [1]),
    ("long", [2**40, 1]),
    ("double", [0.5, Decimal("1.0")]),
    ("decimal(9,2)", [Decimal("1.00"), Decimal("0.25")]),
    (
        "string",
        [
            "a",
            "b",
            "10:00:00",
            "2024-01-01",
            "2024-01-01T10:00:00.5",
            "2024-01-01T10:00:00Z",
            "1.5",
            ID,
        ],
    ),
    ("binary", ["YWJj", "YQ=="]),
    ("date", ["2024-01-01"]),
    ("timestamp", ["2024-01-01T10:00:00.000000Z"]),
    ("timestamp_ntz", ["2024-01-01T10:00:00.000000"]),
    ({"type": "array", "elementType": "integer", "containsNull": True}, [[1], []]),
    ({"type": "array", "elementType": "string", "containsNull": True}, [["a"]]),
    ({"type": "map", "keyType": "string", "valueType": "integer"}, [{"x": 1}, {"member_int": 1}]),
    (STRUCT_X, [{"x": 1}]),
    (STRUCT_Y, [{"y": "a"}]),
    (MEMBER, [{"member_int": 1}]),
]
