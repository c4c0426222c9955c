"""The entry point of the `taskmanager` command."""

from __future__ import annotations

from kafka_pipeline.common.process.standard_streams import make_usable
from kafka_pipeline.common.process.stop_signals import StopSignals


def main() -> None:
    """Run the command with the process's arguments."""
    signals = StopSignals()
    signals.install()
    make_usable()
    # Imported late: this takes half a second, and signals may arrive meanwhile.
    from kafka_pipeline.taskmanager.command import app

    app(obj=signals)
