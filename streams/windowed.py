"""Windows, and keys in a window."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")


class Window(NamedTuple):
    """An interval of time, in ms.

    `end` is exclusive in a window of fixed size; in a session and in a sliding window, it is the
    time of the last record that belongs to it.
    """

    start: int
    end: int


class Windowed(NamedTuple, Generic[K]):
    """A key in a window; the same key in another window is another key."""

    key: K
    window: Window
