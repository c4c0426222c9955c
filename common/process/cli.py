"""Ends a command on an error, in the same way for all three programs."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from functools import wraps
from inspect import cleandoc
from typing import ParamSpec, TypeVar

from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.printable import LAYOUT, printable

INTERRUPTED_EXIT_CODE = 130
"""The exit code that a shell reports for a process that Ctrl-C ended."""

_FULL = (errno.ENOSPC, errno.EDQUOT)

P = ParamSpec("P")
T = TypeVar("T")


def run_command(command: Callable[P, T]) -> Callable[P, T]:
    """Decorate a command so that its errors end the process in the way that users expect.

    A PipelineError prints its message on stderr, without a traceback, and exits with its
    `exit_code`; Ctrl-C exits with 130, and a full disk with 3. Any other exception is a bug, and
    propagates with its traceback.

    Paragraphs of the docstring, which `--help` shows, become single lines: Typer would keep the
    line breaks of the source, and add those for the width of the terminal.

        @app.command()
        @run_command
        def validate(config: Path) -> None: ...
    """

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = command(*args, **kwargs)
            # What is still in the buffer may be too much for a disk, too.
            print(end="", flush=True)
            return result
        except PipelineError as error:
            print(printable(str(error), LAYOUT), file=sys.stderr)
            raise SystemExit(error.exit_code) from error
        except OSError as error:
            if error.errno not in _FULL:
                raise
            place = "" if error.filename is None else f" {error.filename}"
            text = f"cannot write{place}: {os.strerror(error.errno)}"
            print(printable(text, LAYOUT), file=sys.stderr)
            # The end of the process would fail at the rest of the output again.
            sys.stdout = io.StringIO()
            raise SystemExit(UnavailableError.exit_code) from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED_EXIT_CODE) from None

    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    run.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return run
