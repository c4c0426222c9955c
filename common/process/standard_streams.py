"""Replaces standard streams that are closed."""

from __future__ import annotations

import os
import sys

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_missing() -> None:
    """Open the null device for each standard stream that is closed, as after `2>&-` in a shell.

    Otherwise, Python has `None` for it, and its number goes to the next file or connection that is
    opened, and with it all that libraries and child processes print.
    """
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
