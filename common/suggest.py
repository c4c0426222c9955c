"""The "did you mean" at the end of an error message."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `, did you mean "x"?` for the choice nearest to `word`, or "" if none is near."""
    by_folded = {choice.casefold(): choice for choice in choices}
    near = get_close_matches(word.casefold(), by_folded, n=1)
    return f', did you mean "{by_folded[near[0]]}"?' if near else ""


def one_of(choices: Iterable[str]) -> str:
    """Return `"a", "b" or "c"`."""
    *others, last = [f'"{choice}"' for choice in choices]
    return f"{', '.join(others)} or {last}" if others else last
