"""JSON of typed values: readable, and checked against the types of fields when it is read.

msgspec reads it. `json` writes it: msgspec would write NaN and infinities, which may be in the
config of user code, as null, and it leaves out a default only if it is the same object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any

from msgspec import NODEFAULT, DecodeError, Meta, Struct, ValidationError, convert
from msgspec.structs import fields as struct_fields

from kafka_pipeline.common.names import MAX_NAME_LENGTH, NAME
from kafka_pipeline.common.tasks import TaskId

MOST_LEVELS = 50
"""The maximum depth of untyped JSON from a topic."""

LARGEST = 2**63 - 1
"""The largest count. JSON may have thousands of digits, which no float can hold."""

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
_NAME = rf"^(?!\.{{1,2}}\Z){NAME}\Z"
Name = Annotated[str, Meta(pattern=_NAME)]
"""A name that may become part of a topic, a path or a transactional id."""


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of values whose JSON leaves out defaults and must not have unknown fields."""


def as_json(value: Any) -> Any:
    """Return a value as JSON. `Strict` values and dataclasses leave out fields with defaults."""
    if isinstance(value, TaskId):
        return str(value)
    type_: Any = type(value)
    if isinstance(value, Struct) or is_dataclass(type_):
        found = ((name, getattr(value, of), default) for of, name, default in _fields(type_))
        return {name: as_json(each) for name, each, default in found if each != default}
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value


@cache
def _fields(type_: Any) -> list[tuple[str, str, Any]]:
    """Return the attributes of a type, each with its name in JSON and its default, to leave out."""
    if is_dataclass(type_):
        return [
            (f.name, f.name, f.default if f.default_factory is MISSING else f.default_factory())
            for f in fields(type_)
        ]
    omits = type_.__struct_config__.omit_defaults
    return [
        (
            f.name,
            f.encode_name,
            NODEFAULT
            if not omits
            else f.default
            if f.default_factory is NODEFAULT
            else f.default_factory(),
        )
        for f in struct_fields(type_)
    ]


def dump(value: Any) -> bytes:
    """Return JSON without blanks."""
    return json.dumps(value, default=as_json, separators=(",", ":")).encode()


def from_json(type_: Any, data: Any, what: str) -> Any:
    """Return the value of this type that `as_json` wrote.

    Raises ValueError for anything else; the message starts with `what` and names the place, such as
    `$.tables[0].topic`.
    """
    try:
        return convert(data, type_, dec_hook=parsed_text)
    except ValidationError as error:
        raise ValueError(f"{what}: {in_words(error)}") from error


def in_words(error: DecodeError) -> str:
    """Return what msgspec says, with words for the pattern of names."""
    return str(error).replace(_AS_REGEX, _NAME_IN_WORDS)


_AS_REGEX = f"Expected `str` matching regex {_NAME!r}"
_NAME_IN_WORDS = (
    f'Expected a name of 1 to {MAX_NAME_LENGTH} letters, digits, ".", "_" and "-", '
    'which is not "." or ".."'
)


def parsed_text(type_: Any, data: Any) -> Any:
    """Read types that msgspec does not know: the ids of tasks, and windows. Raises ValueError."""
    return type_.parse(data)


def parse(data: bytes) -> Any:
    """Return the JSON of a topic, a file or a request as plain values, for `from_json`.

    Raises ValueError if it is not JSON, if it is nested so deeply that code which walks it may
    fail, or if it contains half a surrogate pair, which UTF-8 cannot hold.
    """
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [found]
    for _ in range(MOST_LEVELS):
        level = [each for value in level for each in _inside(value)]
        if not level:
            json.dumps(found, ensure_ascii=False).encode()
            return found
    raise ValueError(f"nested more than {MOST_LEVELS} levels deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
