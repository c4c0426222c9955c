"""How SIGTERM and Ctrl-C end a daemon, from its first line on.

Imports little: it is there before the modules that take long.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """The handlers of SIGTERM and SIGINT, for the main thread.

    | until | the first signal | the second one |
    | --- | --- | --- |
    | `hold` | ends the process with exit code 0 | |
    | `forward` | is noted | has its default effect: the process ends at once |
    | the end | calls back | likewise |
    """

    def __init__(self) -> None:
        self.is_requested = False
        """Whether a signal came, since `hold`."""
        self._is_held = False
        self._callback: Callable[[], object] | None = None

    def install(self) -> None:
        """Handle the signals from now on. What starts has nothing to bring to an end."""
        for number in _NUMBERS:
            signal.signal(number, self._on_signal)

    def hold(self) -> None:
        """From now on, something must be brought to an end: only note that a signal came."""
        self._is_held = True

    def forward(self, callback: Callable[[], object]) -> bool:
        """From now on, call `callback` at a signal. False if one came before: the caller ends."""
        self._callback = callback
        return not self.is_requested

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_held:
            # Not by an exception: it could come up anywhere, and be reported where none can pass.
            os._exit(0)
        for repeated in _NUMBERS:
            signal.signal(repeated, signal.SIG_DFL)
        self.is_requested = True
        if self._callback is not None:
            self._callback()
