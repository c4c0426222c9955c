"""The keys of YAML maps as values, for parsing, JSON Schemas and reference tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kafka_pipeline.common.config import durations

T = TypeVar("T", bound=str)

Schema = dict[str, Any]
"""A JSON Schema, draft 7, which all editors support."""

SCHEMA_VERSION = "http://json-schema.org/draft-07/schema#"

PAIR = ": "
"""Separates the two parts of a choice that is a map of one pair."""

FILLED = r"\S"
"""A pattern for text that is not blank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """A key of a map; `doc` is its line in the reference.

    `about` says what a required key is for, at the end of the error message if it is missing.
    """

    name: str
    doc: str
    about: str = ""
    required: bool = False

    def schema(self) -> Schema:
        """Return the JSON Schema of the value; conditions that involve other keys are left out."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """The kind of value, for the reference."""
        raise NotImplementedError

    @property
    def default_text(self) -> str:
        """The default, for the reference; "" if there is none."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(ConfigKey):
    """A whole number from `low` to `high`; without a default, it may be missing."""

    low: int
    high: int | None = None
    default: int | None = None

    def schema(self) -> Schema:
        high = {} if self.high is None else {"maximum": self.high}
        return {"type": "integer", "minimum": self.low, **high}

    @property
    def kind(self) -> str:
        return f"number from {self.low}" + ("" if self.high is None else f" to {self.high}")

    @property
    def default_text(self) -> str:
        return "" if self.default is None else str(self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(ConfigKey):
    """A string that is not blank. The `pattern` is for the schema; code may refuse more."""

    default: str | None = None
    pattern: str = FILLED

    def schema(self) -> Schema:
        return {"type": "string", "pattern": self.pattern}

    @property
    def kind(self) -> str:
        return "string"

    @property
    def default_text(self) -> str:
        return self.default or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration(Text):
    """A duration such as `10 min`, in one of the `units`; the smallest number is `low`, 0 or 1."""

    low: int = 0
    units: Sequence[str] = durations.UNITS

    def schema(self) -> Schema:
        return {"type": "string", "pattern": durations.pattern(self.units, self.low)}

    @property
    def kind(self) -> str:
        return "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(ConfigKey, Generic[T]):
    """One of several words; if they are too many to list, `says` describes them in the reference.

    A choice such as `skip: all` is a map of one pair.
    """

    choices: Sequence[T]
    default: T | None = None
    says: str = ""

    @property
    def words(self) -> Sequence[str]:
        """The choices that are a single word."""
        return [str(choice) for choice in self.choices if PAIR not in choice]

    @property
    def pairs(self) -> Sequence[str]:
        """The choices that are pairs, as they are written in a file: `{skip: all}`."""
        return [f"{{{choice}}}" for choice in self.choices if PAIR in choice]

    def schema(self) -> Schema:
        words: Schema = {"enum": self.words}
        pairs = [choice.split(PAIR) for choice in self.choices if PAIR in choice]
        return {"anyOf": [words, *(_pair_schema(*pair) for pair in pairs)]} if pairs else words

    @property
    def kind(self) -> str:
        *others, last = (f"`{choice}`" for choice in (*self.words, *self.pairs))
        return self.says or " or ".join((*filter(None, [", ".join(others)]), last))

    @property
    def default_text(self) -> str:
        return self.default or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(ConfigKey):
    """True or false."""

    default: bool

    def schema(self) -> Schema:
        return {"type": "boolean"}

    @property
    def kind(self) -> str:
        return "`true` or `false`"

    @property
    def default_text(self) -> str:
        return str(self.default).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts(ConfigKey):
    """A list of strings that are not blank; a single one counts as a list."""

    pattern: str = FILLED
    default: Sequence[str] = ()

    def schema(self) -> Schema:
        one: Schema = {"type": "string", "pattern": self.pattern}
        return {"anyOf": [one, {"type": "array", "items": one}]}

    @property
    def kind(self) -> str:
        return "list of strings"

    @property
    def default_text(self) -> str:
        return ", ".join(self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(ConfigKey):
    """A map with keys of its own."""

    keys: Sequence[ConfigKey]

    def schema(self) -> Schema:
        return map_schema(self.keys)

    @property
    def kind(self) -> str:
        return "map"


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(ConfigKey):
    """A value that only code checks; `of` is its JSON Schema, and `parts` are keys inside of it.

    `says` describes it in the reference.
    """

    of: Schema
    says: str
    parts: Sequence[ConfigKey] = ()

    def schema(self) -> Schema:
        return self.of

    @property
    def kind(self) -> str:
        return self.says


def _pair_schema(name: str, value: str) -> Schema:
    return {
        "type": "object",
        "properties": {name: {"const": value}},
        "required": [name],
        "additionalProperties": False,
    }


def names(keys: Sequence[ConfigKey]) -> tuple[str, ...]:
    """Return the names of the keys."""
    return tuple(key.name for key in keys)


def _described(key: ConfigKey) -> Schema:
    """Return the schema of a key's value, with its reference line and its default."""
    default = getattr(key, "default", None)
    plain = list(default) if isinstance(default, tuple) else default
    shown = {} if plain in (None, "", []) else {"default": plain}
    return {"description": key.doc, **shown, **key.schema()}


def map_schema(keys: Sequence[ConfigKey]) -> Schema:
    """Return the JSON Schema of a map with these keys and no others."""
    required = [key.name for key in keys if key.required]
    return {
        "type": "object",
        "properties": {key.name: _described(key) for key in keys},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }
