"""The errors a user sees, one class per reaction.

    PipelineError             1  something failed; the message says what to do
    ├── ConfigError           2  correct the file or the arguments, then start again
    ├── UnavailableError      3  bring up what is missing, then start again
    └── SupersededError       4  stop: another process does this work now

The number is the exit code of a command that ends with the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar


class OwnError(Exception):
    """Base of the errors whose words are this engine's own.

    `str(error)` is the whole message. If it quotes data of records, `shown` has the rest: the words
    for logs, statuses and dead letters, see `kafka_pipeline.common.code.error_words`.
    """

    is_on_purpose: ClassVar[bool] = False
    """Whether user code raises it in order to have its words shown."""

    _shown: str | None = None

    def __init__(self, *args: object, shown: str | None = None) -> None:
        """Give `shown` if the message quotes data of records."""
        super().__init__(*args)
        if shown is not None:
            self._shown = shown

    @property
    def says_what_is_shown(self) -> bool:
        """Whether `shown` was given, and is not just the message."""
        return self._shown is not None

    @property
    def shown(self) -> str:
        """The message, without data of records."""
        return str(self) if self._shown is None else self._shown

    def show(self, shown: str) -> None:
        """Set what is `shown`, where only the caller knows that the message quotes a record."""
        self._shown = shown


class PipelineError(OwnError):
    """Base of all errors meant for users; `str(error)` is the whole message."""

    exit_code: ClassVar[int] = 1


class ControlFlow(BaseException):
    """Base of what ends or interrupts something of this engine on purpose; it is no error."""


class EscapedError(OwnError):
    """User code raised what is not an `Exception`: `SystemExit`, or the panic of an extension."""


def as_exception(error: BaseException) -> Exception:
    """Return what user code has raised as an error that `on_error` can decide on.

    Extensions in Rust raise panics that are not an `Exception` (PyO3 3918), and libraries call
    `sys.exit`. Raises what is no error: Ctrl-C and what this engine does on purpose.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit | ControlFlow):
        raise error
    return escaped(error)


@contextmanager
def nothing_escapes() -> Iterator[None]:
    """Raise what user code raises as `as_exception` has it."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error


def escaped(error: BaseException) -> Exception:
    """Return an error as one that ends neither a thread nor an event loop, whatever it is."""
    if isinstance(error, Exception):
        return error
    shown = f"{type(error).__name__}, which is not an Exception"
    found = EscapedError(f"{shown}: {error}" if str(error) else shown, shown=shown)
    found.__cause__ = error
    return found.with_traceback(error.__traceback__)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file; `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        """Return `file:line:column: message`, the form that editors can jump to."""
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class ConfigError(PipelineError):
    """A file or an argument is wrong: correct it; a retry does not help.

    Takes all problems found, to print one per line, or a plain message if no line of a file is to
    blame; `problems` is then empty.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[Problem] | str, *, shown: str | None = None) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        lines = [problems] if isinstance(problems, str) else [str(p) for p in problems]
        super().__init__("\n".join(lines), shown=shown)


class UnavailableError(PipelineError):
    """Something needed is not there (a broker, Java, a port, a writable folder): start it."""

    exit_code = 3


class SupersededError(PipelineError):
    """Another JobManager leads, or another TaskManager has this id: stop, do not retry."""

    exit_code = 4


class EngineError(OwnError):
    """Kafka or the disk failed, not a record: base of errors that a PipelineThread handles."""


def shorten(text: str, most: int) -> str:
    """Return `text`, cut off with an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[:most]}…"
