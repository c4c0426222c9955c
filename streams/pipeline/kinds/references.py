"""Checks what pipeline.yaml hands to code and tables: references, and secrets written out."""

from __future__ import annotations

import re

from kafka_pipeline.common.config.expansion import ExpansionError, references, without_references
from kafka_pipeline.common.config.yaml_positions import Items, Map, Problems, Scalar, Value
from kafka_pipeline.common.security.secret_names import is_secret

_ADVICE = (
    "pipeline.yaml goes onto a topic, where it stays: write ${NAME} or ${file:PATH}, which each "
    "TaskManager replaces"
)
_USER_INFO = re.compile(r"://[^/?#@\s:]*:[^/?#@\s]+@")
_PARAMETER = re.compile(r"[?&;](?P<name>[^=?&;\s]+)=(?=[^&;\s])")


def check_value(name: str, value: Value, problems: Problems) -> None:
    """Report references that are malformed, and secrets that are written out, in this value.

    `name` is its key, with the keys around it in front, joined by dots.
    """
    match value:
        case Map():
            for pair in value.pairs:
                check_value(f"{name}.{pair.key}", pair.value, problems)
        case Items():
            for item in value.items:
                check_value(name, item, problems)
        case Scalar(value=str(text)):
            if problem := _text_problem(name, text):
                problems.add(value, problem)
        case Scalar(value=bool() | None):
            pass
        case Scalar():
            if is_secret(name):
                problems.add(value, _written_out(name))


def _text_problem(name: str, text: str) -> str | None:
    try:
        found, rest = references(text), without_references(text)
    except ExpansionError as error:
        return f"{name}: {error}"
    if is_secret(name):
        if any(reference.default for reference in found):
            return f"{name} has a default, and {_ADVICE}. A secret has no default"
        return _written_out(name) if text.strip() and not found else None
    if _USER_INFO.search(rest):
        return f"{name} has a password in its URL, and {_ADVICE}"
    for parameter in _PARAMETER.finditer(rest):
        if is_secret(parameter["name"]):
            return f'{name} has "{parameter["name"]}" in its URL, and {_ADVICE}'
    return None


def _written_out(name: str) -> str:
    return f"{name} is a secret, by its name, and {_ADVICE}"
