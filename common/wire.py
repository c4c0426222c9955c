"""Reads JSON objects from a topic or a channel, which may contain anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_pipeline.common.names import require_name

MOST_LEVELS = 50
"""How deeply JSON of a topic may be nested where any JSON may be."""

LARGEST = 2**63 - 1
"""No number is larger. JSON may have thousands of digits, which no float can hold."""


class JsonObject:
    """Typed access to a parsed JSON object; every method raises ValueError on another type."""

    def __init__(self, data: Any, defaults: Mapping[str, Any] = {}) -> None:
        """Wrap what `json.loads` returned; it must be an object. Missing fields have `defaults`."""
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
        self._data = {**defaults, **data}

    def raw(self, name: str) -> Any:
        """Return a field of any type; it must be there."""
        if name not in self._data:
            raise ValueError(f"{name} is missing")
        return self._data[name]

    def integer(self, name: str, low: int = 0) -> int:
        """Return a whole number from `low` to `LARGEST`; a boolean does not count as one."""
        value = self.raw(name)
        if type(value) is not int or not low <= value <= LARGEST:
            raise ValueError(f"{name} is not an integer from {low} up to {LARGEST}")
        return value

    def integer_or_none(self, name: str, low: int = 0) -> int | None:
        """Return a whole number of at least `low`, or None for null."""
        return None if self.raw(name) is None else self.integer(name, low)

    def text(self, name: str) -> str:
        """Return a string that UTF-8 can hold; JSON can also spell half a surrogate pair."""
        value = self.raw(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a string")
        value.encode()
        return value

    def name(self, name: str) -> str:
        """Return a string that may become part of a topic, a path or a transactional id."""
        return require_name(name, self.text(name))

    def name_or_none(self, name: str) -> str | None:
        """Return such a name, or None for null."""
        return None if self.raw(name) is None else self.name(name)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of such names as a tuple."""
        return tuple(require_name(name, each) for each in self.texts(name))

    def boolean(self, name: str) -> bool:
        """Return a boolean."""
        value = self.raw(name)
        if not isinstance(value, bool):
            raise ValueError(f"{name} is not true or false")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a list of anything."""
        value = self.raw(name)
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings as a tuple."""
        values = self.items(name)
        if not {*map(type, values)} <= {str}:  # thousands of them are checked in each report
            raise ValueError(f"{name} is not a list of strings")
        "".join(values).encode()
        return tuple(values)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers from 0 to `LARGEST` as a tuple."""
        values = self.items(name)
        if any(type(value) is not int or not 0 <= value <= LARGEST for value in values):
            raise ValueError(f"{name} is not a list of integers from 0 up to {LARGEST}")
        return tuple(values)

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object."""
        value = self.raw(name)
        if not isinstance(value, dict):
            raise ValueError(f"{name} is no JSON object")
        return value


def require_shallow(data: Any) -> None:
    """Raise ValueError for JSON that is nested so deeply that code which walks it may fail."""
    level = [data]
    for _ in range(MOST_LEVELS):
        level = [each for value in level for each in _inside(value)]
        if not level:
            return
    raise ValueError(f"nested more than {MOST_LEVELS} levels deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
