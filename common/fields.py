"""Typed, strict access to the keys of a YAML map; every mistake goes to `Problems`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from common.suggest import did_you_mean, one_of
from common.yaml_positions import Items, Located, Map, Pair, Problems, Scalar, Value, describe

# YAML 1.1 also reads 010 as 8 and 1:30 as 90, which nobody means here.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,18})")

T = TypeVar("T", bound=str)


class Fields:
    """The keys of one map; a key that is not in `known` is a problem.

    A getter that finds a mistake reports it and returns a stand-in of the right type, so that
    reading goes on and finds the others too; the caller raises at the end. `at` is where a
    missing key is reported.
    """

    def __init__(
        self, pairs: Iterable[Pair], problems: Problems, *, at: Located, known: Sequence[str]
    ) -> None:
        self._values: dict[str, Value] = {}
        self._problems = problems
        self._at = at
        for pair in pairs:
            self._values[pair.key] = pair.value
            if pair.key not in known:
                hint = did_you_mean(pair.key, known) or f": the keys are {', '.join(known)}"
                problems.add(pair.at, f'unknown key "{pair.key}"{hint}')

    def at(self, key: str) -> Located:
        """Return where the key's value is, or where a missing key is reported."""
        return self._values.get(key, self._at)

    def get(self, key: str) -> Value | None:
        """Return the value of an optional key, or None if the key is not there."""
        return self._values.get(key)

    def require(self, key: str, about: str) -> Value | None:
        """Return the value of a key that must be there; `about` says what it is for."""
        value = self._values.get(key)
        if value is None:
            self._problems.add(self._at, f'missing key "{key}" ({about})')
        return value

    def text(self, key: str, *, about: str = "", default: str | None = None) -> str:
        """Return a string that is not empty, or "" in place of a bad one."""
        value = self._value(key, about, default)
        if value is None:
            return default or ""
        if not isinstance(value, Scalar) or not isinstance(value.value, str):
            quotes = ": put it in quotes" if _reads_as_text_in_quotes(value) else ""
            self._problems.add(value, f"{key} must be a string, got {describe(value)}{quotes}")
            return ""
        if not value.value.strip():
            self._problems.add(value, f"{key} is empty")
            return ""
        return value.value

    def number(
        self,
        key: str,
        *,
        low: int,
        high: int | None = None,
        about: str = "",
        default: int | None = None,
    ) -> int:
        """Return a whole number between `low` and `high`; a string counts only if expanded."""
        stand_in = low if default is None else default
        value = self._value(key, about, default)
        if value is None:
            return stand_in
        number = _whole_number(value)
        if number is None:
            self._problems.add(value, f"{key} must be a whole number, got {describe(value)}")
            return stand_in
        if number < low or (high is not None and number > high):
            allowed = f"at least {low}" if high is None else f"{low} to {high}"
            self._problems.add(value, f"{key} must be {allowed}, got {number}")
            return stand_in
        return number

    def choice(
        self, key: str, choices: Sequence[T], *, default: T | None, about: str = "", or_: str = ""
    ) -> T:
        """Return the choice that the key names; `or_` says what else the value may be."""
        stand_in = choices[0] if default is None else default
        value = self._value(key, about, default)
        if value is None:
            return stand_in
        if isinstance(value, Scalar) and isinstance(value.value, str):
            for choice in choices:
                if choice == value.value:
                    return choice
            near = did_you_mean(value.value, choices)
        else:
            near = ""
        allowed = f"{one_of(choices)}{or_}"
        self._problems.add(value, f"{key} must be {allowed}, got {describe(value)}{near}")
        return stand_in

    def submap(self, key: str, *, known: Sequence[str]) -> Fields:
        """Return the keys of a map inside this one; no keys if it is missing."""
        return Fields(self.pairs(key), self._problems, at=self._at, known=known)

    def pairs(self, key: str) -> tuple[Pair, ...]:
        """Return the pairs of an optional map whose keys are free; none if it is missing."""
        value = self._value(key, "", "")
        if value is None:
            return ()
        if not isinstance(value, Map):
            self._problems.add(value, f"{key} must be a map, got {describe(value)}")
            return ()
        return value.pairs

    def items(self, key: str, *, about: str) -> Items | None:
        """Return a required list, or None in place of a bad one."""
        value = self._value(key, about, None)
        if value is None or isinstance(value, Items):
            return value
        example = ""
        if isinstance(value, Scalar) and isinstance(value.value, str):
            example = f': write ["{value.value}"]'
        self._problems.add(value, f"{key} must be a list, got {describe(value)}{example}")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings of an optional list; a single string counts as a list of one."""
        value = self._value(key, "", "")
        if value is None:
            return ()
        items = value.items if isinstance(value, Items) else (value,)
        texts = []
        for item in items:
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.strip():
                texts.append(item.value)
            elif not self._problems.found_at(item):
                self._problems.add(item, f"{key} must hold texts, got {describe(item)}")
        return tuple(texts)

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self._value(key, "", default=str(default))
        if value is None:
            return default
        if not isinstance(value, Scalar) or not isinstance(value.value, bool):
            self._problems.add(value, f"{key} must be true or false, got {describe(value)}")
            return default
        return value.value

    def _value(self, key: str, about: str, default: object) -> Value | None:
        value = self.require(key, about) if default is None else self.get(key)
        return None if value is None or self._problems.found_at(value) else value


def _whole_number(value: Value) -> int | None:
    if not isinstance(value, Scalar) or isinstance(value.value, bool | float | None):
        return None
    if isinstance(value.value, str):
        text = value.value.strip() if value.expanded_from else ""
    else:
        text = value.text.replace("_", "")
    return int(text) if _INTEGER.fullmatch(text) else None


def _reads_as_text_in_quotes(value: Value) -> bool:
    return isinstance(value, Scalar) and value.value is not None
