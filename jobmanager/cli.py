"""Where the process of the `jobmanager` command begins."""

from __future__ import annotations

from common.stop_signals import StopSignals


def main() -> None:
    """Run the command with the process's arguments."""
    signals = StopSignals()
    signals.install()
    # Imported late: it takes half a second, and signals may come meanwhile.
    from jobmanager.command import app

    app(obj=signals)
