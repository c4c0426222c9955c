"""Makes the standard streams of a command usable, however it was started."""

from __future__ import annotations

import os
import sys

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def make_usable() -> None:
    """Open the null device for each standard stream that is closed, as after `2>&-` in a shell.

    Otherwise, Python has `None` for it, and its number goes to the next file or connection that is
    opened, and with it all that libraries and child processes print.

    A terminal's width of 0, in `COLUMNS`, counts as unknown: the help would have no room.
    """
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
