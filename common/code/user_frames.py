"""Finds the lines of user code in tracebacks and stacks."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from kafka_pipeline.common.code.engine_code import is_engine_file
from kafka_pipeline.common.errors import message_of, shorten

_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_CALLED_BY_THE_ENGINE = ("confluent_kafka", "py4j", "pyarrow", "pyspark")
"""Libraries that the engine calls without user code in between; they may be installed anywhere."""
_MOST_FRAMES = 20
_LONGEST_LINE = 200

Entry = tuple[FrameType, int]
"""A frame of a traceback, and the line in it that was reached."""


class _Origin(Enum):
    ENGINE = auto()
    STANDARD_LIBRARY = auto()
    INSTALLED = auto()
    USER = auto()


@dataclass(frozen=True, slots=True)
class UserFrame:
    """A line of user code; `file` is relative to the import path, such as `shop/orders.py`."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return `shop.py:17 in process`."""
        return f"{self.file}:{self.line} in {self.function}"


class StackLine(NamedTuple):
    """A line of a stack that is known only from its text."""

    path: str
    line: int
    function: str


@dataclass(frozen=True)
class Trace:
    """The traceback of an exception: all its frames, the innermost last.

    If the engine wrapped an exception of user code, the frames of that exception follow, and
    `error` is the wrapped one.
    """

    error: BaseException
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, error: BaseException) -> Trace:
        """Return the trace of an exception that was caught."""
        return _traced(error, frozenset())

    @cached_property
    def user_entries(self) -> list[Entry]:
        """The entries of user code, at most the 20 innermost; a repeated line counts once.

        Without any user code on the stack, the first installed package that the engine called
        counts as user code.
        """
        own = [entry for entry in self.entries if _origin(entry[0].f_code) is _Origin.USER]
        own = [entry for entry in own if _package(entry[0]) not in _CALLED_BY_THE_ENGINE]
        innermost: dict[tuple[str, int], Entry] = {}
        for frame, line in reversed(own or self._package_entries()):
            innermost.setdefault((frame.f_code.co_filename, line), (frame, line))
        return list(innermost.values())[:_MOST_FRAMES][::-1]

    @cached_property
    def user_frames(self) -> tuple[UserFrame, ...]:
        """The `user_entries` as frames to show; the innermost is the last."""
        return tuple(_user_frame(frame, line) for frame, line in self.user_entries)

    def text(self, last: str) -> str:
        """Return the user's frames with their lines of source, as Python shows them, then `last`.

        It contains no variables.
        """
        lines = ["Traceback of user code (most recent call last):"]
        for (frame, number), shown in zip(self.user_entries, self.user_frames, strict=True):
            lines.append(f'  File "{shown.file}", line {shown.line}, in {shown.function}')
            source = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
            if source:
                lines.append(f"    {shorten(source, _LONGEST_LINE)}")
        return "\n".join([*lines, last])

    def _package_entries(self) -> list[Entry]:
        """Return the entries in the installed package that the engine called first."""
        origins = [(entry, _origin(entry[0].f_code)) for entry in self.entries]
        for entry, origin in origins:
            package = _package(entry[0])
            if origin is _Origin.INSTALLED and package not in _CALLED_BY_THE_ENGINE:
                return [each for each, _ in origins if _package(each[0]) == package]
        return []


def is_engine(frame: FrameType) -> bool:
    """Whether a frame runs code of this engine."""
    return _origin(frame.f_code) is _Origin.ENGINE


def is_installed(file: str) -> bool:
    """Whether a source file belongs to Python or to an installed package."""
    return _origin_of_file(file) in (_Origin.STANDARD_LIBRARY, _Origin.INSTALLED)


def place_of(error: BaseException) -> str:
    """Return `shop.py:17 in process`: the innermost line of user code; "" if there is none."""
    frames = Trace.of(error).user_frames
    return str(frames[-1]) if frames else ""


def place_in(thread: int) -> str:
    """Return the innermost line of user code that a thread is running now, as `place_of` does."""
    found = []
    frame = sys._current_frames().get(thread)
    while frame is not None:
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    frames = Trace(RuntimeError(), tuple(reversed(found))).user_frames
    return str(frames[-1]) if frames else ""


def place_in_stack(stack: Sequence[StackLine]) -> str:
    """Return ` in native code, called from shop.py:17 in process` for a stack.

    The innermost line comes first. If it is not user code, it is named too. Returns "" for an empty
    stack.
    """
    if not stack:
        return ""
    own = next((each for each in stack if _origin_of_file(each.path) is _Origin.USER), None)
    inner = stack[0]
    by = {_Origin.ENGINE: "the engine", _Origin.INSTALLED: "a package"}.get(
        _origin_of_file(inner.path), "Python"
    )
    via = "" if inner is own else f" of {by} ({_in_stack(inner)})"
    called = "" if own is None else f", called from {_in_stack(own)}"
    return f" in native code{via}{called}"


def _in_stack(found: StackLine) -> str:
    """Return `shop/orders.py:17 in process`; the file is relative to the import path."""
    folders = [f"{folder}{os.sep}" for folder in sys.path if folder]
    inside = max((f for f in folders if found.path.startswith(f)), key=len, default="")
    return f"{found.path.removeprefix(inside)}:{found.line} in {found.function}"


def place_of_definition(defined: Callable[..., Any]) -> str:
    """Return ` (shop.py:17 in process)`: where a class or a function of user code is defined.

    Returns "" if that is not known, or not in user code.
    """
    found = inspect.unwrap(getattr(defined, "__func__", defined))
    try:
        path = inspect.getfile(found)
        line = inspect.findsource(found)[1] + 1
    except (OSError, TypeError):
        return ""
    if _origin_of_file(path) is not _Origin.USER:
        return ""
    return f" ({_file(path, found.__module__)}:{line} in {found.__name__})"


def with_place(error: BaseException) -> str:
    """Return class, message and place of an error in user code that no record caused."""
    place = place_of(error)
    return f"{type(error).__name__}: {message_of(error)}" + (f" ({place})" if place else "")


def _traced(error: BaseException, seen: frozenset[int]) -> Trace:
    entries = tuple(_entries(error))
    cause = error.__cause__
    is_wrapped = cause is not None and (not entries or is_engine(entries[-1][0]))
    if cause is not None and is_wrapped and id(cause) not in seen:
        deeper = _traced(cause, seen | {id(error)})
        if deeper.user_entries:
            return Trace(deeper.error, entries + deeper.entries)
    return Trace(error, entries)


def _entries(error: BaseException) -> Iterable[Entry]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _user_frame(frame: FrameType, line: int) -> UserFrame:
    file = _file(frame.f_code.co_filename, frame.f_globals.get("__name__") or "")
    return UserFrame(file, line, frame.f_code.co_name)


@lru_cache(maxsize=4096)
def _file(path: str, module: str) -> str:
    parts = Path(path).parts
    depth = module.count(".") + 1 + (parts[-1] == "__init__.py")
    return "/".join(parts[-depth:])


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "").partition(".")[0]


def _origin(code: CodeType) -> _Origin:
    return _origin_of_file(code.co_filename)


@lru_cache(maxsize=4096)
def _origin_of_file(path: str) -> _Origin:
    if is_engine_file(path):
        return _Origin.ENGINE
    if any(folder in path for folder in _INSTALLED):
        return _Origin.INSTALLED
    # Code that is made at run time, as by dataclasses, has a name such as <string>.
    if path.startswith(("<", _STANDARD_LIBRARY)):
        return _Origin.STANDARD_LIBRARY
    return _Origin.USER
