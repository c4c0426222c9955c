"""Logs errors of user code: one traceback for each, then the number of repetitions."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import structlog

from kafka_pipeline.common.code.error_words import class_name
from kafka_pipeline.common.code.user_frames import UserFrame
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.user_errors import Explanation

REPORT_INTERVAL_S = 60.0
_MOST_ERRORS = 256

logger = structlog.get_logger()


class UserCodeError(Exception):
    """User code raised outside of a record, as in `init`; the message names the place.

    The error is already in the log. The task starts again.
    """


def log_context(task: TaskId) -> AbstractContextManager[None]:
    """Add the task and its processor to everything that this thread logs in the context.

    Use it around all calls that may run user code, in the thread that runs them.
    """
    return structlog.contextvars.bound_contextvars(task=str(task), processor=task.processor)


@dataclass(slots=True)
class _Known:
    """An error that was logged."""

    fields: dict[str, str]
    logged_s: float
    total: int = 1
    pending: int = 0
    """The number of repetitions since it was last logged."""


class UserErrorLog:
    """Logs each distinct error of user code once, and then its count at intervals.

    Errors are the same if the exception's class and the user's frames are the same. Keeps the 256
    latest. Any thread may use it.
    """

    def __init__(
        self, clock_s: Callable[[], float] = time.monotonic, *, with_values: bool = False
    ) -> None:
        """`with_values` says whether tracebacks show messages that may quote records."""
        self._clock_s = clock_s
        self._with_values = with_values
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, tuple[UserFrame, ...]], _Known] = OrderedDict()

    def record(self, error: Exception, log: Any, *, with_values: bool = False) -> bool:
        """Log an error, or count a repetition; return whether user code was on the stack at all.

        Give `with_values` for an error that cannot quote a record.
        """
        explained = Explanation(error, with_values=self._with_values or with_values)
        frames = explained.trace.user_frames
        if not frames:
            return False
        key = class_name(explained.trace.error), frames
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                known.total += 1
                known.pending += 1
                self._known.move_to_end(key)
                return True
            self._known[key] = _Known(_fields(explained), self._clock_s())
            oldest = self._known.popitem(last=False)[1] if len(self._known) > _MOST_ERRORS else None
        log_user_error(explained, log)
        if oldest is not None and oldest.pending:
            _log_count(oldest)
        return True

    def report(self) -> None:
        """Log the number of repetitions of known errors, each at most once a minute."""
        now_s = self._clock_s()
        with self._lock:
            due = [
                known
                for known in self._known.values()
                if known.pending and now_s - known.logged_s >= REPORT_INTERVAL_S
            ]
            for known in due:
                _log_count(known)
                known.logged_s, known.pending = now_s, 0


def log_user_error(explained: Explanation, log: Any) -> None:
    """Log an error of user code with its traceback, reduced to the user's frames."""
    if explained.trace.user_entries:
        log.warning("user code failed", **_fields(explained), exception=explained.traceback)


def _fields(explained: Explanation) -> dict[str, str]:
    trace, node = explained.trace, explained.node
    return {
        "error": class_name(trace.error),
        "place": str(trace.user_frames[-1]),
        **({"node": node.name} if node is not None else {}),
    }


def _log_count(known: _Known) -> None:
    logger.warning("user code failed again", times=known.pending, total=known.total, **known.fields)
