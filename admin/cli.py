"""The entry point of the `pipeline` command."""

from __future__ import annotations

import io
import signal
import sys
from types import FrameType

from kafka_pipeline.common.process.standard_streams import make_usable


def main() -> None:
    """Run the command that the process arguments name."""
    # Imported late: this takes a while, and Ctrl-C meanwhile ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    make_usable()
    # A terminal whose encoding lacks a character gets an escape, as it does on stderr anyway.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    from kafka_pipeline.admin.app import app_for
    from kafka_pipeline.common.process.cli import INTERRUPTED_EXIT_CODE

    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        app_for(sys.argv[1:])()
    except (KeyboardInterrupt, SystemError):
        # Either the command was still imported, or confluent-kafka lost a KeyboardInterrupt that
        # was raised while it logged (its issue 1708).
        if not interrupts:
            raise
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None
    finally:
        # Pressed again while the process ends, it has no traceback either.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
