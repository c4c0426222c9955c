"""The functions that topologies name; Functions.java has the same ones for Kafka Streams.

Values are strings or whole numbers. Each function takes either of them, and None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka_pipeline.streams.stores import Windowed

_LONGEST_TEXT = 40
_LARGEST_SUM = 12

Value = str | int | None


def number(value: Any) -> int:
    """Return a number for any value: itself, the length of a string, 0 for None."""
    if isinstance(value, int):
        return value
    return 0 if value is None else len(text(value))


def text(value: Any) -> str:
    """Return a string for any key or value."""
    if isinstance(value, Windowed):
        return f"{text(value.key)}@{value.window.start}-{value.window.end}"
    return "-" if value is None else str(value)


def cut(long_text: str) -> str:
    """Return the end of a text: texts that grow with each record would fill the memory."""
    return long_text[-_LONGEST_TEXT:]


def letter(value: Any) -> str:
    """Return a, b or c."""
    return "abc"[number(value) % 3]


PREDICATES: Mapping[str, Callable[[Any, Any], bool]] = {
    "even_value": lambda key, value: number(value) % 2 == 0,
    "has_value": lambda key, value: value is not None,
    "has_key": lambda key, value: key is not None,
    "early_key": lambda key, value: text(key) < "b",
    "large_value": lambda key, value: number(value) > 2,
}

KEY_MAPPERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "letter": lambda key, value: letter(value),
    "letter_or_null": lambda key, value: None if number(value) == 2 else letter(value),
    "key_text": lambda key, value: text(key),
    "key_number": lambda key, value: number(value) % 3,
    "inner_key": lambda key, value: key.key if isinstance(key, Windowed) else key,
}

VALUE_MAPPERS: Mapping[str, Callable[[Any], Any]] = {
    "increment": lambda value: number(value) + 1,
    "number": number,
    "text": text,
    "decorate": lambda value: cut(f"<{text(value)}>"),
    "null_if_odd": lambda value: None if number(value) % 2 == 1 else value,
}

PAIR_MAPPERS: Mapping[str, Callable[[Any, Any], tuple[Any, Any] | None]] = {
    "letter_and_text": lambda key, value: (letter(value), cut(text(key) + text(value))),
    "letter_and_number": lambda key, value: (letter(value), number(value) + len(text(key))),
    "letter_or_nothing": lambda key, value: (
        None if number(value) == 2 else (letter(value), cut(text(key) + text(value)))
    ),
}

VALUE_SPLITTERS: Mapping[str, Callable[[Any], list[Any]]] = {
    "twice": lambda value: [value, value],
    "letters": lambda value: list(text(value)),
    "countdown": lambda value: list(range(number(value) % 3, 0, -1)),
}

PAIR_SPLITTERS: Mapping[str, Callable[[Any, Any], list[tuple[Any, Any]]]] = {
    "both_letters": lambda key, value: [
        (letter(value), cut(text(key) + text(value))),
        (letter(text(key)), text(value)),
    ],
    "numbers": lambda key, value: [(letter(n), n) for n in range(number(value) % 3, 0, -1)],
}


def _sum_or_null(left: Any, right: Any) -> int | None:
    total = number(left) + number(right)
    return None if total > _LARGEST_SUM else total


COMBINERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda left, right: number(left) + number(right),
    "difference": lambda left, right: number(left) - number(right),
    "sum_or_null": _sum_or_null,
    "concat": lambda left, right: cut(text(left) + text(right)),
    "remove": lambda left, right: cut(f"{text(left)}~{text(right)}"),
    "pair": lambda left, right: cut(f"({text(left)},{text(right)})"),
    "latest": lambda left, right: right,
}
"""The adders, reducers, mergers, subtractors and joiners: of a total or left value, and another."""

INITIAL: Mapping[str, Callable[[], Any]] = {"zero": lambda: 0, "empty": lambda: ""}
