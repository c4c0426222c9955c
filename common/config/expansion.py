"""Expands references: `${VAR}`, `${VAR:-default}` and `${file:PATH}` in values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kafka_pipeline.common.config.yaml_positions import Items, Map, Problems, Scalar, Value
from kafka_pipeline.common.security.secret_file import (
    SecretFileError,
    read_secret_file,
    without_line_end,
)

# The last alternative catches every other "${", so that a mistyped reference is an error.
_REFERENCE = re.compile(
    r"(?P<escape>\$\$\{)"
    r"|\$\{file:(?!-)(?P<file>[^}]+)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{"
)

REFERENCE_PATTERN = r"\$\{([A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?|file:[^}]+)\}"
"""A JSON Schema pattern for strings with a reference."""

_MALFORMED = (
    '"${" starts no reference: write ${NAME}, ${NAME:-default} or ${file:PATH}, '
    'or $${ for the text "${"'
)


class ExpansionError(ValueError):
    """A reference has no value, may not be read, or is malformed; `str(error)` says which.

    The message names the variable or the file, and contains no value.
    """


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable of the environment, with an optional default, or a file, which never has one."""

    name: str = ""
    default: str | None = None
    file: str = ""


class Values(Protocol):
    """Supplies the values of references."""

    def variable(self, name: str) -> str | None:
        """Return the value of a variable, or None if it is not set.

        Raises ExpansionError if it may not be read.
        """

    def file(self, path: str) -> str:
        """Return the content of a file. Raises ExpansionError."""


@dataclass(frozen=True, slots=True)
class HostValues:
    """`Values` with all variables and all files; relative paths are relative to `folder`."""

    environment: Mapping[str, str]
    folder: Path

    def variable(self, name: str) -> str | None:
        return self.environment.get(name)

    def file(self, path: str) -> str:
        try:
            return read_secret_file(self.folder / path)
        except SecretFileError as error:
            raise ExpansionError(f"${{file:{path}}}: {error}") from None


def has_references(value: Any) -> bool:
    """Whether a string in a JSON value contains `${`."""
    return any("${" in text for _, text in texts(value))


def references(text: str) -> list[Reference]:
    """Return the references in a string, in order. Raises ExpansionError if one is malformed."""
    found = []
    for match in _REFERENCE.finditer(text):
        if match["escape"] is None:
            found.append(_reference(match))
    return found


def without_references(text: str) -> str:
    """Return a string without its references."""
    return _REFERENCE.sub("", text)


def expand_text(text: str, values: Values) -> str:
    """Return `text` with each reference replaced by its value, and `$${` by `${`.

    As in a shell, `:-` also replaces a variable that is set but empty. Values are used as they
    are, without a line break at their end: a `${` in them is not expanded again. Raises
    ExpansionError.
    """

    def value_of(match: re.Match[str]) -> str:
        if match["escape"] is not None:
            return "${"
        reference = _reference(match)
        if reference.file:
            return values.file(reference.file)
        name, found = reference.name, values.variable(reference.name)
        if found is not None:
            found = without_line_end(found)
        if reference.default is not None:
            return found or reference.default
        if found is None:
            raise ExpansionError(
                f"the environment variable {name} is not set: "
                f"set it, or give a default as in ${{{name}:-default}}"
            )
        return found

    return _REFERENCE.sub(value_of, text)


def expand_json(value: Any, values: Values, what: str) -> Any:
    """Return a JSON value with the references in all its strings replaced; keys stay as they are.

    `what` names the value in errors, as `config` in "config.password". Raises ExpansionError.
    """
    if isinstance(value, Mapping):
        return {name: expand_json(each, values, f"{what}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [expand_json(each, values, f"{what}[{n}]") for n, each in enumerate(value)]
    if isinstance(value, str) and "${" in value:
        try:
            return expand_text(value, values)
        except ExpansionError as error:
            raise ExpansionError(f"{what}: {error}") from None
    return value


def texts(value: Any, what: str = "") -> Iterator[tuple[str, str]]:
    """Yield the strings of a JSON value, each with its place as `expand_json` names it."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from texts(each, f"{what}.{name}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from texts(each, f"{what}[{number}]")
    elif isinstance(value, str):
        yield what, value


def expand(value: Value, values: Values, problems: Problems) -> Value:
    """Return `value` with the references in all its strings replaced; keys stay as they are."""
    match value:
        case Map():
            pairs = (replace(p, value=expand(p.value, values, problems)) for p in value.pairs)
            return replace(value, pairs=tuple(pairs))
        case Items():
            return replace(
                value, items=tuple(expand(item, values, problems) for item in value.items)
            )
        case Scalar(value=str(text)) if "${" in text:
            try:
                expanded = expand_text(text, values)
            except ExpansionError as error:
                problems.add(value, str(error))
                return replace(value, value="", expanded_from=text)
            return replace(value, value=expanded, expanded_from=text)
        case _:
            return value


def _reference(match: re.Match[str]) -> Reference:
    if match["file"] is not None:
        return Reference(file=match["file"])
    if match["name"] is None:
        raise ExpansionError(_MALFORMED)
    return Reference(match["name"], match["default"])
