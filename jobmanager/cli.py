"""The entry point of the `jobmanager` command."""

from __future__ import annotations

from kafka_pipeline.common.process.standard_streams import make_usable
from kafka_pipeline.common.process.stop_signals import StopSignals


def main() -> None:
    """Run the command with the process's arguments."""
    signals = StopSignals()
    signals.install()
    make_usable()
    # Imported late: the import takes half a second, and a signal may arrive during it.
    from kafka_pipeline.jobmanager.command import app

    app(obj=signals)
