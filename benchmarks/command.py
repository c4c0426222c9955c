"""What the commands of benchmarks have in common: numbers, messages, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from kafka_pipeline.admin.signals import Interrupted, Signals
from kafka_pipeline.common.errors import PipelineError


def positive(text: str) -> int:
    """Return a whole number of 1 or more, which may have underscores, for `argparse`."""
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def say(text: str) -> None:
    """Print a line to stderr, so that stdout has results only."""
    print(text, file=sys.stderr, flush=True)


def exit_after(run: Callable[[], int]) -> NoReturn:
    """Run, and exit with the code that it returns, with that of a signal, or that of an error."""
    Signals().install()
    try:
        sys.exit(run())
    except Interrupted as interrupt:
        sys.exit(128 + interrupt.number)
    except PipelineError as error:
        say(str(error))
        sys.exit(error.exit_code)
