"""What operators have in common: types of results, and what several of them draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.differential.drawing import Drawing, Node

RESULT_OF: Mapping[str, str] = {
    "increment": "long",
    "number": "long",
    "text": "string",
    "decorate": "string",
    "letters": "string",
    "countdown": "long",
    "letter": "string",
    "letter_or_null": "string",
    "key_text": "string",
    "key_number": "long",
    "letter_and_text": "string",
    "letter_or_nothing": "string",
    "letter_and_number": "long",
    "both_letters": "string",
    "numbers": "long",
    "sum": "long",
    "sum_or_null": "long",
    "difference": "long",
    "concat": "string",
    "remove": "string",
    "pair": "string",
    "zero": "long",
    "empty": "string",
}
"""The type that a function returns; all others return the type that they take."""
PREDICATES = ("even_value", "has_value", "has_key", "early_key", "large_value")


def is_plain(node: Node) -> bool:
    """Return whether the keys of a node are not windowed."""
    return node.has_plain_keys


def plain_with(key: str) -> Callable[[Node], bool]:
    """Return a test for plain keys of a type."""
    return lambda node: node.has_plain_keys and node.step.key == key


def draw_grace_ms(draw: Drawing) -> int:
    """Return the grace period of windows."""
    return draw.ms(0, 2, 5, 30)


def draw_key_mapper(draw: Drawing, parent: Node) -> tuple[str, str]:
    """Return a function from key and value to a key, and the type of its keys."""
    if not parent.has_plain_keys and draw.happens(0.4):
        return "inner_key", parent.step.key
    f = str(draw.one_of("letter", "letter", "letter_or_null", "key_text", "key_number"))
    return f, RESULT_OF[f]


def add_filter(draw: Drawing, op: str, parent: Node, f: str) -> Node:
    """Add a `filter` or `filter_not` of a stream or table."""
    return draw.add(
        op,
        [parent],
        {"f": f, **stored(draw, parent, must=parent.sends_wrong_olds)},
        parent.step.shape,
        versioned=parent.is_versioned,
        close_known=parent.is_close_known,
    )


def stored(draw: Drawing, parent: Node, *, must: bool = False) -> dict[str, bool]:
    """Return whether a table has a store, as an argument."""
    if parent.step.shape != "table" or parent.is_versioned:
        return {}
    return {"stored": must or draw.happens(0.25)}
