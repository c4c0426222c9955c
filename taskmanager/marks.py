"""The calls of user code in progress in a worker, in memory that outlives its process."""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import NamedTuple

from kafka_pipeline.common.protocol.suspects import CallKind, Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.call_mark import CallMark, NoMark

MOST_MARKS = 4096
"""The most calls that are marked in a worker; further ones are not."""
_SLOT_BYTES = 1024
_HEAD = struct.Struct("=BQqqq")
"""Kind of call (0 for none), thread, partition, first and last offset."""
_TEXT = struct.Struct("=H")
_TASK_AT, _TOPIC_AT, _MOST_TEXT = 64, 512, 440
_KINDS = tuple(CallKind)
_FORKED = (
    "a process that user code has forked came back to the engine, and is ended: end it by "
    "os._exit, or use subprocess or multiprocessing\n"
)


class MarkedCall(NamedTuple):
    """A call of user code that was in progress."""

    task: TaskId
    call: Suspect
    thread: int
    """Python's id of the thread."""


class Marks:
    """The marks of a worker, in an anonymous mapping that it shares with its parent process."""

    def __init__(self) -> None:
        """Allocate the memory; only pages that were written to take up space."""
        self._memory = mmap.mmap(-1, MOST_MARKS * _SLOT_BYTES)
        self._lock = threading.Lock()
        self._of: dict[TaskId, list[TaskMark]] = {}
        self._count = 0
        self.is_in_fork = False
        """Whether this process is a copy of the worker, made by user code."""

    def watch_forks(self) -> None:
        """Have a process that user code forks from this one end when its call is over.

        Otherwise, it would go on as a second owner of the tasks, with the connections of this one.
        """
        os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self.is_in_fork = True

    def of(self, task: TaskId) -> Callable[[], CallMark]:
        """Return a function that makes marks for a task's next start, reusing its former ones."""
        with self._lock:
            known = self._of.setdefault(task, [])
        for mark in known:
            mark.clear()
        number = 0

        def new_mark() -> CallMark:
            nonlocal number
            with self._lock:
                if number == len(known):
                    if self._count == MOST_MARKS:
                        return NoMark()
                    known.append(TaskMark(self, self._memory, self._count * _SLOT_BYTES, task))
                    self._count += 1
                number += 1
                return known[number - 1]

        return new_mark

    def read(self) -> list[MarkedCall]:
        """Return all marks that are set."""
        return [mark for n in range(MOST_MARKS) if (mark := self._read(n * _SLOT_BYTES))]

    def _read(self, at: int) -> MarkedCall | None:
        kind, thread, partition, first, last = _HEAD.unpack_from(self._memory, at)
        if not kind:
            return None
        topic = self._text(at + _TOPIC_AT)
        task = TaskId.parse(self._text(at + _TASK_AT))
        return MarkedCall(
            task, Suspect(str(_KINDS[kind - 1]), topic, partition, first, last), thread
        )

    def _text(self, at: int) -> str:
        (length,) = _TEXT.unpack_from(self._memory, at)
        start = at + _TEXT.size
        return self._memory[start : start + length].decode()


class TaskMark:
    """The mark of a task, see `CallMark`."""

    def __init__(self, marks: Marks, memory: mmap.mmap, at: int, task: TaskId) -> None:
        self._marks = marks
        self._memory = memory
        self._at = at
        self._topic = ""
        self._write(at + _TASK_AT, str(task))

    def set(
        self,
        kind: CallKind,
        topic: str = "",
        partition: int = 0,
        first: int = 0,
        last: int = 0,
        thread: int = 0,
    ) -> None:
        if topic != self._topic:
            self._topic = topic
            self._write(self._at + _TOPIC_AT, topic)
        number = _NUMBERS[kind]
        _HEAD.pack_into(
            self._memory, self._at, number, thread or get_ident(), partition, first, last
        )

    def clear(self) -> None:
        if self._marks.is_in_fork:
            sys.stderr.write(_FORKED)
            sys.stderr.flush()
            os._exit(1)
        self._memory[self._at] = 0

    def _write(self, at: int, text: str) -> None:
        data = text.encode()
        assert len(data) <= _MOST_TEXT, "names of Kafka are no longer"
        _TEXT.pack_into(self._memory, at, len(data))
        start = at + _TEXT.size
        self._memory[start : start + len(data)] = data


_NUMBERS = {kind: number for number, kind in enumerate(_KINDS, 1)}
