"""Structured logs on stderr: for people at a terminal, or one JSON object per line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from kafka_pipeline.common.code.error_words import traceback_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.config_keys import LogFormat, LogLevel
from kafka_pipeline.common.printable import LAYOUT, printable


class _StandardError:
    """Standard error, without exceptions if the disk is full or the reader is gone.

    `contextlib.redirect_stderr(None)` in user code takes it away from all threads.
    """

    def write(self, text: str) -> None:
        if stream := sys.stderr or sys.__stderr__:
            with suppress(OSError, ValueError):
                stream.write(text)

    def flush(self) -> None:
        if stream := sys.stderr or sys.__stderr__:
            with suppress(OSError, ValueError):
                stream.flush()


class _Handler(logging.StreamHandler[Any]):
    """Handles the standard library's entries; loggers of `modules` have their own level."""

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__(_StandardError())
        self.modules = modules


def configure_as(config: Config) -> None:
    """Send the logs of this process to stderr, as config.yaml says; see `configure`."""
    configure(
        config.log_format,
        config.log_level,
        config.modules,
        with_values=config.log_record_values,
    )


def configure(
    format: LogFormat,
    level: LogLevel,
    modules: Sequence[str] = (),
    *,
    with_values: bool = False,
) -> None:
    """Send the logs of this process to stderr; a second call replaces the first.

    Each entry has `event`, `level`, an ISO `timestamp` in UTC, and the bound values: `task`,
    `epoch`, `thread`, `task_manager`. Bind them with `get_logger().bind(…)` for a logger or with
    `structlog.contextvars` for a thread. Colours appear on a terminal only. Entries of the standard
    library's `logging` are included: warnings and worse of libraries, and entries of at least
    `level` of the user `modules` and their submodules. Messages in tracebacks that may quote
    records are shown only `with_values`.
    """
    lowest = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderers = _renderers(format, with_values=with_values)
    output: Any = _StandardError()
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=structlog.WriteLoggerFactory(output),
        # A cached logger would keep the configuration of an earlier call.
        cache_logger_on_first_use=False,
    )
    handler = _Handler(modules)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_add_extra, *shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    _route_standard_library(handler, lowest)


_extra_of = structlog.stdlib.ExtraAdder()


def _add_extra(logger: Any, method: str, entry: EventDict) -> EventDict:
    """Add what `extra` of a call of `logging` has; the message stays if that has an `event`."""
    found = _extra_of(logger, method, {"_record": entry["_record"]})
    # Formatters of other handlers have left these two.
    extra = {name: found[name] for name in found if name not in ("message", "asctime")}
    return {**extra, **entry}


def _printable(_logger: Any, _method: str, entry: EventDict) -> EventDict:
    """Escape control characters: names and reasons may come from anyone."""
    for name, value in entry.items():
        if isinstance(value, str):
            entry[name] = printable(value, LAYOUT)
    return entry


def _renderers(format: LogFormat, *, with_values: bool) -> list[Processor]:
    """Return the last processors; none prints local variables, which may hold passwords."""

    def formatted(exc_info: ExcInfo) -> str:
        return traceback_of(exc_info[1], with_values=with_values)

    if format == "json":
        exceptions = structlog.processors.ExceptionRenderer(formatted)
        return [exceptions, _showing_all(structlog.processors.JSONRenderer(allow_nan=False))]

    def write(file: TextIO, exc_info: ExcInfo) -> None:
        file.write(f"\n{formatted(exc_info)}")

    console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=write)
    return [_printable, _showing_all(console)]


def _showing_all(render: Callable[[Any, str, EventDict], str | bytes]) -> Processor:
    """Return a renderer that shows what `render` cannot show by its `repr`.

    Otherwise a log call would raise, and fail the record that user code works on: JSON has no keys
    that are tuples, no cycles and no NaN (structlog 265).
    """

    def rendered(logger: Any, method: str, entry: EventDict) -> str | bytes:
        def showable(name: str, value: Any) -> Any:
            try:
                render(logger, method, {name: value})
            except Exception:
                return _repr(value)
            return value

        try:
            return render(logger, method, {**entry})
        except Exception:
            return render(logger, method, {name: showable(name, entry[name]) for name in entry})

    return rendered


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}: its __repr__ raised {type(error).__name__}>"


def _route_standard_library(handler: _Handler, lowest: int) -> None:
    root = logging.getLogger()
    for former in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(former)
        for module in former.modules:
            logging.getLogger(module).setLevel(logging.NOTSET)
    root.addHandler(handler)
    root.setLevel(max(lowest, logging.WARNING))
    for module in handler.modules:
        logging.getLogger(module).setLevel(lowest)
