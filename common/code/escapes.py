"""What user code raises that is not an `Exception`, as an error that `on_error` can decide on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_pipeline.common.errors import ControlFlow, escaped


def as_exception(error: BaseException) -> Exception:
    """Return what user code raised as an `Exception`, so that `on_error` can decide on it.

    Extensions in Rust raise panics that are not an `Exception` (PyO3 3918), and libraries call
    `sys.exit`. Ctrl-C and the engine's own `ControlFlow` are raised again. Python raises Ctrl-C in
    the main thread only: elsewhere, user code itself has raised `KeyboardInterrupt`.
    """
    is_from_keyboard = (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
    )
    if is_from_keyboard or isinstance(error, ControlFlow):
        raise error
    return escaped(error)


@contextmanager
def nothing_escapes() -> Iterator[None]:
    """Raise anything that the body raises in the form of `as_exception`."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error
