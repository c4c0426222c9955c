"""Turns the first SIGINT, SIGTERM or SIGHUP into an exception, so that everything is cleaned up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_pipeline.common.errors import ControlFlow

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(ControlFlow):
    """A signal asks this process to end; `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def orderly_end() -> Iterator[None]:
    """Let signals end the block as an exception would, and then this process."""
    former = {number: signal.getsignal(number) for number in _NUMBERS}
    Signals().install()
    try:
        yield
    except Interrupted as interruption:
        raise SystemExit(128 + interruption.number) from None
    finally:
        for number, handler in former.items():
            if handler is not None:  # None is one that Python did not install
                signal.signal(number, handler)


class Signals:
    """The signal handlers of this process; for its main thread."""

    def __init__(self) -> None:
        self._held = False
        self._pending: int | None = None

    def install(self) -> None:
        """Make the first signal raise `Interrupted`, and later ones do nothing.

        Signals that were ignored when this process started, as under nohup, stay ignored.
        """
        for number in _NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def ignore(self) -> None:
        """Ignore signals from now on, so that this process can clean up."""
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def is_pending(self) -> bool:
        """Whether a signal has come that interrupts this process at the end of the block."""
        return self._pending is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Defer the interruption by a signal to the end of the block."""
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
