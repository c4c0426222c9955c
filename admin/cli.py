"""The entry point of the `pipeline` command."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command that the process arguments name."""
    # Imported late: this takes a second, and Ctrl-C meanwhile ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kafka_pipeline.admin.app import app

    signal.signal(signal.SIGINT, signal.default_int_handler)
    app()
