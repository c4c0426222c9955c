"""The errors a user sees, one class per reaction.

    PipelineError             1  something failed; the message says what to do
    ├── ConfigError           2  correct the file or the arguments, then start again
    ├── UnavailableError      3  bring up what is missing, then start again
    └── SupersededError       4  stop: another process does this work now

The number is the exit code of a command that ends with the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class OwnError(Exception):
    """Base of errors whose words come from this engine.

    `str(error)` is the whole message. If it quotes data of records, `shown` is the message without
    that data, for logs, statuses and dead letters; see `common.code.error_words`.
    """

    is_on_purpose: ClassVar[bool] = False
    """Whether user code raises it in order to have its words shown."""

    _shown: str | None = None

    def __init__(self, *args: object, shown: str | None = None) -> None:
        """Give `shown`, the message without data of records, if `args` quote such data."""
        super().__init__(*args)
        if shown is not None:
            self._shown = shown

    @property
    def says_what_is_shown(self) -> bool:
        """Whether `shown` was given, and differs from the message."""
        return self._shown is not None

    @property
    def shown(self) -> str:
        """The message, without data of records."""
        return str(self) if self._shown is None else self._shown

    def show(self, shown: str) -> None:
        """Set `shown`, for a caller that alone knows that the message quotes a record."""
        self._shown = shown


class PipelineError(OwnError):
    """Base of all errors meant for users; `str(error)` is the whole message."""

    exit_code: ClassVar[int] = 1


class ControlFlow(BaseException):
    """Base of exceptions that end or interrupt work on purpose; they are not errors."""


class EscapedError(OwnError):
    """User code raised what is not an `Exception`, such as `SystemExit` or an extension's panic."""


def message_of(error: BaseException) -> str:
    """Return `str(error)`; if that raises, which class of error it raised."""
    try:
        return str(error)
    except Exception as raised:
        return f"its __str__ raised {type(raised).__name__}"


def escaped(error: BaseException) -> Exception:
    """Return any error as an `Exception`, which ends neither a thread nor an event loop."""
    if isinstance(error, Exception):
        return error
    shown = f"{type(error).__name__}, which is not an Exception"
    message = message_of(error)
    found = EscapedError(f"{shown}: {message}" if message else shown, shown=shown)
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
    """A file or an argument is wrong: the user corrects it; a retry does not help.

    `problems` are the mistakes found, which are printed one per line. It is empty for a plain
    message that concerns no line of a file.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[Problem] | str, *, shown: str | None = None) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        lines = [problems] if isinstance(problems, str) else [str(p) for p in problems]
        super().__init__("\n".join(lines), shown=shown)


class UnavailableError(PipelineError):
    """Something is not running or not usable (a broker, Java, a port, a folder): start it."""

    exit_code = 3


class SupersededError(PipelineError):
    """Another JobManager leads, or another TaskManager has this id: stop, do not retry."""

    exit_code = 4


class EngineError(OwnError):
    """Kafka or the disk failed, not a record: base of the errors that a PipelineThread handles."""


def shorten(text: str, most: int) -> str:
    """Return `text`, cut off with an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[:most]}…"
