"""Puts Spark's errors into one line, and tells whether a record may be to blame for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    PythonException,
)

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.code.fatal_stacks import fatal_stack
from kafka_pipeline.common.code.user_frames import place_in_stack
from kafka_pipeline.common.errors import ConfigError, shorten
from kafka_pipeline.streams.sql.plan_calls import JavaError
from kafka_pipeline.streams.sql.spec import EndedQueryError, QueryError, SparkLostError

_OF_SPARK = (PySparkException, Py4JJavaError, JavaError)
_LONGEST = 400
_CONDITION = re.compile(r"^\[[A-Za-z_0-9.]+\]\s*")
_FIRST_CONDITION = re.compile(r"(?:\A|Exception: |Error: )\[([A-Z][A-Z_0-9.]*)\]")
"""Whatever quotes data comes after it."""
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_LAST_STATE = re.compile(r"\sSQLSTATE: ([0-9A-Z]{5})\s*(?:\n==.*)?\Z", re.DOTALL)
_ON_PURPOSE = "USER_RAISED_EXCEPTION"
"""The condition of `raise_error`, whose words the query chose."""
_FULL_GROUP = re.compile(
    r"(.+? (?:has more than \d+ values in|keeps more than \d+ rows of) )the group "
)
"""Its words where `distinct_plan` and `ranked_plan` have it raised, up to the keys of the group."""
_PYTHON_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+), in (\S+)')
_PLACE = re.compile(r";?\s*\(?line (\d+),? pos (\d+)\)?;?")
_CLASS = re.compile(r"^[\w.$]+(?:Exception|Error): ")
_FIELD_OF_RECORDS = re.compile(
    r"Reference \S+ is ambiguous, could be: "
    r"\[(`[^\[\]]+`\.`(key|timestamp|partition|offset|headers)`), \1\]",
    re.IGNORECASE,
)
"""A column that a query sees twice, as that of every record and as a field of the schema."""
# Classes of Spark's error conditions: data exceptions, and those that a query raises itself.
_ABOUT_DATA = re.compile(r"SQLSTATE: (?:22|P0)")
_PYTHON = "Traceback (most recent call last)"
_MISSING_CODE = re.compile(r"DATA_SOURCE_NOT_FOUND|ClassNotFound|No suitable driver")
_ENDED = "Python worker exited unexpectedly (crashed)"
_NAMELESS = 'NullPointerException: Cannot invoke "String.length()" because "name" is null'
"""How Spark fails to name the field of a string that should be a FLOAT or DOUBLE, in an array."""
_IN_AN_ARRAY = (
    "[CANNOT_PARSE_JSON_FIELD] a string in an array of the record should be a FLOAT or DOUBLE. "
    "SQLSTATE: 2203G"
)
_FATAL = re.compile(r"Fatal Python error: (.+)")
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
"""The words of `faulthandler`."""
_NO_RECORDS_FAULT = re.compile(
    r"SparkContext|ExecutorLost|executor \S+ (?:exited|lost)|OutOfMemory|cancelled|shut ?down"
    r"|No space left|Connection (?:refused|reset)|worker exited unexpectedly|Broken pipe"
    r"|failed to connect back|Cannot run program|Too many open files|unable to create native thread"
    r"|TaskResultLost|Failed to get broadcast_|execute broadcast in|blockmgr-"
)


def one_line(error: Exception) -> str:
    """Return an error's message, with the line and column of the query if it has them."""
    text = _text(error)
    if isinstance(error, ParseException | AnalysisException):
        place = _PLACE.search(text)
        head = re.split(r"\s*SQLSTATE|;|\n\n|\n(?:'|\+|==)", text, maxsplit=1)[0]
        where = f" (line {place[1]}, column {int(place[2]) + 1})" if place else ""
        return _short(_CONDITION.sub("", head)) + where + _way_out(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _PYTHON in text:
        # From a Python function: its own exception is the last line that is not indented.
        own = [
            line for line in text.split("\n\tat ")[0].splitlines() if re.match(r"[\w.]+: ", line)
        ]
        return _short(own[-1] if own else lines[-1])
    first = lines[0] if lines else type(error).__name__
    if first.endswith(":") and len(lines) > 1:
        first = f"{first} {lines[1]}"
    return _short(_CONDITION.sub("", _STATE.sub("", _CLASS.sub("", first))))


def _way_out(text: str) -> str:
    """Return what to do about a name that is a field of the schema and a column of every record."""
    if (found := _FIELD_OF_RECORDS.search(text)) is None:
        return ""
    return (
        f": every record has a column {found[2].lower()}, so the schema cannot have it as a field. "
        "Leave it out there or, if its values are needed, read them by format: string and from_json"
    )


def without_values(error: Exception) -> str:
    """Return as much of `one_line` as quotes no record: the words of wrong queries, else the kind.

    That is Spark's error condition or, of a Python function, the class of the exception.
    """
    if isinstance(error, ParseException | AnalysisException):
        return one_line(error)
    if not isinstance(error, _OF_SPARK):
        return described(error, with_values=False)
    text = _text(error)
    if _PYTHON in text:
        return _python_kind(text) or type(error).__name__
    condition = _FIRST_CONDITION.search(text)
    if condition is None:
        of_spark = None if _ABOUT_DATA.search(text) else _NO_RECORDS_FAULT.search(text)
        return of_spark[0] if of_spark else _kind(text) or type(error).__name__
    if condition[1] == _ON_PURPOSE:
        words = one_line(error)
        found = _FULL_GROUP.match(words)
        return f"{found[1]}a group: see max_collected" if found else words
    state = _LAST_STATE.search(text.split("\n\tat ")[0])
    return condition[1] + (f" (SQLSTATE {state[1]})" if state else "")


def may_be_a_records_fault(error: Exception) -> bool:
    """Whether the query could succeed with another record; if not, Spark itself is failing."""
    if isinstance(error, PythonException) or (isinstance(error, JavaError) and error.is_of_python):
        return "worker exited unexpectedly" not in str(error)
    if not isinstance(error, _OF_SPARK):
        return False
    text = _text(error).split("\n\tat ")[0]
    # An error about data may quote the data, and so contain any text.
    return _ABOUT_DATA.search(text) is not None or _NO_RECORDS_FAULT.search(text) is None


def how_process_ended(error: Exception) -> str:
    """Return how a Python function has ended its process; "" if an error does not say that it has.

    Spark knows the stack of a fatal signal, but neither exit codes nor whether it was SIGKILL.
    """
    if not isinstance(error, _OF_SPARK):
        return ""
    text = _text(error)
    head, ended, rest = text.partition(_ENDED)
    # An error about data may quote the data, and so contain any text.
    if not ended or _PYTHON in head or _ABOUT_DATA.search(text):
        return ""
    rest = rest.split("\n\tat ")[0]
    stack, fatal = fatal_stack(rest), _FATAL.search(rest)
    if stack is None or fatal is None:
        return "it exited, or got SIGKILL; Spark does not say which"
    name = _SIGNALS.get(fatal[1].strip(), "a fatal error")
    return name + place_in_stack(stack.lines)


@contextmanager
def translated() -> Iterator[None]:
    """Turn Spark's errors into `QueryError` and `SparkLostError`."""
    try:
        yield
    except (QueryError, SparkLostError):
        raise
    except ConfigError as error:
        raise QueryError(str(error), shown=error.shown) from error
    except Exception as error:
        if may_be_a_records_fault(error):
            raise QueryError(one_line(error), shown=without_values(error)) from error
        kind = type(error).__name__
        raise SparkLostError(
            f"{kind}: {one_line(error)}", shown=f"{kind}: {without_values(error)}"
        ) from error


@contextmanager
def ends_found() -> Iterator[None]:
    """Raise `EndedQueryError` if a Python function ends its process, which a record may explain."""
    try:
        yield
    except Exception as error:
        if how := how_process_ended(error):
            raise EndedQueryError(f"ended the process: {how}") from error
        raise


def is_mistake(error: Exception) -> bool:
    """Whether a table's definition or content is wrong, so that another attempt cannot help.

    All other errors may be temporary: each database has its own words for being unavailable.
    """
    if isinstance(error, AnalysisException | ParseException | IllegalArgumentException):
        return True
    text = _text(error).split("\n\tat ")[0]
    return _ABOUT_DATA.search(text) is not None or _MISSING_CODE.search(text) is not None


def _text(error: Exception) -> str:
    """Return an error's text; for a Java error, of the innermost cause that Spark can name."""
    java = getattr(error, "java_exception", None)
    if java is None and not isinstance(error, ParseException | AnalysisException):
        java = getattr(error, "_origin", None)  # of the errors that PySpark has classes for
    text = str(error) if java is None else str(java.toString())
    cause = None if java is None else java.getCause()
    while cause is not None:
        if str(cause.getMessage()).startswith("["):
            text = str(cause.toString())
        cause = cause.getCause()
    return _IN_AN_ARRAY if _NAMELESS in text else text


def _python_kind(text: str) -> str:
    """Return class and place of an exception of Python in an error of Spark; "" if there is none.

    They are in the first line that is not indented and the frame above it: what quotes data can
    only be below. Of a chain of exceptions, this is the first one.
    """
    place = ""
    for line in text.partition(_PYTHON)[2].splitlines()[1:]:
        if frame := _PYTHON_FRAME.match(line):
            place = f" ({PurePath(frame[1]).name}:{frame[2]} in {frame[3]})"
        elif kind := re.match(r"[\w.]+", line):
            return kind[0] + place
    return ""


def _kind(text: str) -> str:
    """Return the class of a Java error, without its package."""
    found = re.match(r"[\w.$]+(?:Exception|Error)\b", text)
    return found[0].rpartition(".")[2] if found else ""


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _LONGEST)
