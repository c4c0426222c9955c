"""Handles SIGTERM, Ctrl-C and a closed terminal in a daemon, from its first line on.

This module imports little, so it is ready before the modules that take long to import.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """The handlers of SIGTERM, SIGINT and SIGHUP, for the main thread.

    SIGHUP stays ignored if it was when the process started, as under `nohup`. It is never a second
    signal: a shell and the kernel both send one when a terminal is closed.

    | from | the first signal | the second one |
    | --- | --- | --- |
    | `install` | ends the process with exit code 0 | |
    | `hold` | is recorded | has its default effect: the process ends at once |
    | `forward` | calls the callback | as after `hold` |
    """

    def __init__(self) -> None:
        self.is_requested = False
        """Whether a signal has come since `hold`."""
        self._is_held = False
        self._callback: Callable[[], object] | None = None

    def install(self) -> None:
        """Handle signals from now on. There is nothing to shut down yet."""
        for number in _NUMBERS:
            signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_signal)

    def hold(self) -> None:
        """From now on, only record signals: there is something to shut down."""
        self._is_held = True

    def forward(self, callback: Callable[[], object]) -> bool:
        """From now on, call `callback` on a signal. False if one has come: the caller ends."""
        self._callback = callback
        return not self.is_requested

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_held:
            # Not an exception: raised where none can propagate, it would only be printed.
            os._exit(0)
        for repeated in _NUMBERS:
            signal.signal(repeated, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.is_requested = True
        if self._callback is not None:
            self._callback()
