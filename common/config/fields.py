"""Typed, strict access to the keys of a YAML map; every mistake goes to `Problems`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kafka_pipeline.common.config import durations
from kafka_pipeline.common.config.keys import (
    PAIR,
    Choice,
    ConfigKey,
    Duration,
    Flag,
    Number,
    Section,
    T,
    Text,
    Texts,
    names,
)
from kafka_pipeline.common.config.yaml_positions import (
    Items,
    Located,
    Map,
    Pair,
    Problems,
    Scalar,
    Value,
    describe,
)
from kafka_pipeline.common.suggest import did_you_mean, one_of

# YAML 1.1 also reads 010 as 8 and 1:30 as 90, which nobody means here.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,18})")


class Fields:
    """The keys of one map; a key that is not in `known` is a problem.

    A getter that finds a mistake reports it and returns a placeholder of the right type, so that
    reading goes on and finds further mistakes; the caller raises at the end. Missing keys are
    reported at `at`.
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

    def without(self, keys: Collection[str]) -> Fields:
        """Return these fields as if some keys were not there."""
        pairs = [
            Pair(name, Scalar(value.line, value.column, name, name), value)
            for name, value in self._values.items()
            if name not in keys
        ]
        return Fields(pairs, self._problems, at=self._at, known=[*self._values])

    def at(self, key: str) -> Located:
        """Return where the key's value is, or where a missing key is reported."""
        return self._values.get(key, self._at)

    def get(self, key: str) -> Value | None:
        """Return the value of an optional key, or None if the key is not there."""
        return self._values.get(key)

    def require(self, key: ConfigKey) -> Value | None:
        """Return the value of a key that must be there."""
        value = self._values.get(key.name)
        if value is None:
            self._problems.add(self._at, f'missing key "{key.name}" ({key.about})')
        return value

    def text(self, key: Text) -> str:
        """Return a string that is not blank, or "" in place of a bad one."""
        value = self._value(key)
        if value is None:
            return key.default or ""
        if not isinstance(value, Scalar) or not isinstance(value.value, str):
            quotes = ": put it in quotes" if _reads_as_text_in_quotes(value) else ""
            got = describe(value, key.name)
            self._problems.add(value, f"{key.name} must be a string, got {got}{quotes}")
            return ""
        if not value.value.strip():
            self._problems.add(value, f"{key.name} is empty")
            return ""
        return value.value

    def path(self, name: str, text: str, folder: Path, *, is_fixed: bool = False) -> Path:
        """Return an absolute path for a text of the key `name`; it may be relative to `folder`.

        Links stay in it, unless it `is_fixed` or goes up by "..": Kubernetes, git-sync and tools
        for releases replace a link while a daemon runs, and delete what it led to before.
        """
        try:
            path = folder / Path(text).expanduser()
            followed = path.resolve()
        except (RuntimeError, ValueError, OSError) as error:
            self._problems.add(self.at(name), f"{name}: {text!r} is not a path: {error}")
            return folder
        return followed if is_fixed or ".." in path.parts else path.absolute()

    def optional_path(self, key: Text, folder: Path) -> Path | None:
        """Return an absolute path, or None if the key is not there; see `path`."""
        text = self.text(key)
        return self.path(key.name, text, folder) if text else None

    def duration(self, key: Duration) -> int | None:
        """Return a duration in ms; `None` if the key is missing or its value is bad."""
        text = self.text(key)
        if not text:
            return None
        found = durations.parsed(text, key.units, key.low)
        if found is None:
            self._problems.add(
                self.at(key.name),
                f'{key.name} must be a time such as "30 s", "10 min" or "1 h", got "{text}"',
            )
        return found

    def number(self, key: Number) -> int:
        """Return a whole number in the key's range; a string counts only if it was expanded.

        If the key is missing, return its default, or the smallest number if it has none.
        """
        stand_in = key.low if key.default is None else key.default
        value = self._value(key)
        if value is None:
            return stand_in
        number = _whole_number(value)
        if number is None:
            got = f"{describe(value)}{_without_quotes(value)}"
            most = " of 19 digits or fewer" if _is_long(value) else ""
            self._problems.add(value, f"{key.name} must be a whole number{most}, got {got}")
            return stand_in
        if number < key.low or (key.high is not None and number > key.high):
            allowed = f"at least {key.low}" if key.high is None else f"{key.low} to {key.high}"
            self._problems.add(value, f"{key.name} must be {allowed}, got {number}")
            return stand_in
        return number

    def number_or_none(self, key: Number) -> int | None:
        """Return a whole number in the key's range, or None if the key is not there."""
        return None if self.get(key.name) is None else self.number(key)

    def choice(self, key: Choice[T], *, or_: str = "") -> T:
        """Return the choice that the value names; `or_` ends the message for a bad one."""
        stand_in = key.choices[0] if key.default is None else key.default
        value = self._value(key)
        if value is None:
            return stand_in
        given = _choice(value)
        for choice in key.choices:
            if choice == given:
                return choice
        near = "" if PAIR in given else did_you_mean(given, key.words)
        pairs = "".join(f", or {pair}" for pair in key.pairs)
        allowed = f"{one_of(key.words)}{pairs}{or_}"
        self._problems.add(value, f"{key.name} must be {allowed}, got {describe(value)}{near}")
        return stand_in

    def submap(self, key: Section) -> Fields:
        """Return the keys of a map inside this one; no keys if it is missing."""
        return Fields(self.pairs(key), self._problems, at=self._at, known=names(key.keys))

    def pairs(self, key: ConfigKey) -> tuple[Pair, ...]:
        """Return the pairs of an optional map; none if it is missing."""
        value = self._optional(key)
        if value is None:
            return ()
        if not isinstance(value, Map):
            self._problems.add(value, f"{key.name} must be a map, got {describe(value)}")
            return ()
        return value.pairs

    def items(self, key: ConfigKey) -> Items | None:
        """Return a required list, or None in place of a bad one."""
        value = self._value(key)
        if value is None or isinstance(value, Items):
            return value
        example = ""
        if isinstance(value, Scalar) and isinstance(value.value, str):
            example = f': write ["{value.value}"]'
        self._problems.add(value, f"{key.name} must be a list, got {describe(value)}{example}")
        return None

    def texts(self, key: Texts) -> tuple[str, ...]:
        """Return the strings of an optional list; a single string counts as a list of one."""
        value = self._optional(key)
        if value is None:
            return ()
        items = value.items if isinstance(value, Items) else (value,)
        texts = []
        for item in items:
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value.strip():
                texts.append(item.value)
            elif not self._problems.found_at(item):
                self._problems.add(item, f"{key.name} must hold texts, got {describe(item)}")
        return tuple(texts)

    def boolean(self, key: Flag) -> bool:
        """Return a boolean."""
        value = self._optional(key)
        if value is None:
            return key.default
        if not isinstance(value, Scalar) or not isinstance(value.value, bool):
            self._problems.add(value, f"{key.name} must be true or false, got {describe(value)}")
            return key.default
        return value.value

    def _value(self, key: ConfigKey) -> Value | None:
        if not key.required:
            return self._optional(key)
        value = self.require(key)
        return None if value is None or self._problems.found_at(value) else value

    def _optional(self, key: ConfigKey) -> Value | None:
        value = self.get(key.name)
        return None if value is None or self._problems.found_at(value) else value


def _whole_number(value: Value) -> int | None:
    if not isinstance(value, Scalar) or isinstance(value.value, bool | float | None):
        return None
    if isinstance(value.value, str):
        text = value.value.strip() if value.expanded_from else ""
    else:
        text = value.text.replace("_", "")
    return int(text) if _INTEGER.fullmatch(text) else None


def _is_long(value: Value) -> bool:
    """Return whether a value is a whole number with more digits than any number may have."""
    return isinstance(value, Scalar) and isinstance(value.value, int) and len(value.text) > 19


def _without_quotes(value: Value) -> str:
    """Return what to do about a number in quotes."""
    match value:
        case Scalar(value=str(text), expanded_from=None) if text.strip().isdecimal():
            return ": leave out the quotes"
    return ""


def _choice(value: Value) -> str:
    """Return a value in the form of `Choice.choices`; "" if it has another form than any choice."""
    match value:
        case Scalar(value=str() as word) if PAIR not in word:
            return word
        case Map(pairs=(Pair(key=name, value=Scalar(value=str() as word)),)):
            return f"{name}{PAIR}{word}"
    return ""


def _reads_as_text_in_quotes(value: Value) -> bool:
    return isinstance(value, Scalar) and value.value is not None
