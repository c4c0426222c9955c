"""Phrases that messages share: "did you mean", lists of choices, counts, and types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `, did you mean "x"?` for the choice closest to `word`, or "" if none is close."""
    by_folded = {choice.casefold(): choice for choice in choices}
    near = get_close_matches(word.casefold(), by_folded, n=1)
    return f', did you mean "{by_folded[near[0]]}"?' if near else ""


def one_of(choices: Iterable[str]) -> str:
    """Return `"a", "b" or "c"`."""
    *others, last = [f'"{choice}"' for choice in choices]
    return f"{', '.join(others)} or {last}" if others else last


def a_type(value: object) -> str:
    """Return the type of a value with its article: `an int`, `a str`."""
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def counted(count: int, noun: str) -> str:
    """Return a number with a regular noun: `1 task`, `2 tasks`, `12,000 tasks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def is_or_are(items: Sequence[object]) -> str:
    """Return the verb that goes with a list of items."""
    return "is" if len(items) == 1 else "are"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and the number of the others: `a, b and 3 more`."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others:,} more" if others > 0 else "")
