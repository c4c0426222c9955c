"""Expands `${VAR}` and `${VAR:-default}` in the values of config.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from common.yaml_positions import Items, Map, Problems, Scalar, Value

# The second form catches every other "${", so that a mistyped reference is never taken as text.
_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{")

REFERENCE_PATTERN = r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"
"""What a string with a reference matches, for JSON Schema."""


class ExpansionError(ValueError):
    """A `${…}` has no value or is malformed; `str(error)` says which."""


def expand_text(text: str, environment: Mapping[str, str]) -> str:
    """Return `text` with each reference replaced by its variable's value.

    As in a shell, `:-` also replaces a variable that is set but empty. Values are used as they
    are: a `${` in them is not expanded again. Raises ExpansionError.
    """

    def value_of(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if name is None:
            raise ExpansionError('"${" starts no reference: write ${NAME} or ${NAME:-default}')
        if default is not None:
            return environment.get(name) or default
        if name not in environment:
            raise ExpansionError(
                f"the environment variable {name} is not set: "
                f"set it, or give a default as in ${{{name}:-default}}"
            )
        return environment[name]

    return _REFERENCE.sub(value_of, text)


def expand(value: Value, environment: Mapping[str, str], problems: Problems) -> Value:
    """Return `value` with the references in all its strings replaced; keys stay as they are."""
    match value:
        case Map():
            pairs = (replace(p, value=expand(p.value, environment, problems)) for p in value.pairs)
            return replace(value, pairs=tuple(pairs))
        case Items():
            return replace(
                value, items=tuple(expand(item, environment, problems) for item in value.items)
            )
        case Scalar(value=str(text)) if "${" in text:
            try:
                expanded = expand_text(text, environment)
            except ExpansionError as error:
                problems.add(value, str(error))
                return replace(value, value="", expanded_from=text)
            return replace(value, value=expanded, expanded_from=text)
        case _:
            return value
