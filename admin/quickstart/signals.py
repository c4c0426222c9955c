"""Turns the first SIGINT, SIGTERM or SIGHUP into an exception, so that everything is cleaned up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Somebody wants this process to end; `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """The signal handlers of this process; for its main thread."""

    def __init__(self) -> None:
        self._held = False
        self._pending: int | None = None

    def install(self) -> None:
        """From now on the first signal raises `Interrupted`, and later ones do nothing.

        Signals that this process was started to ignore, as by nohup, stay ignored.
        """
        for number in _NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def ignore(self) -> None:
        """From now on nothing interrupts this process, so that it can clean up."""
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal that comes meanwhile interrupt only afterwards."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if self._pending is not None:
                raise Interrupted(self._pending)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.ignore()
        self._pending = number
        if not self._held:
            raise Interrupted(number)
