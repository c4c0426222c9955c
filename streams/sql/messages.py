"""Puts Spark's errors into one line, and tells whether a record may be to blame for them."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    PythonException,
)

from common.errors import shorten

_LONGEST = 400
_CONDITION = re.compile(r"^\[[A-Za-z_0-9.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_PLACE = re.compile(r";?\s*\(?line (\d+),? pos (\d+)\)?;?")
_CLASS = re.compile(r"^[\w.$]+(?:Exception|Error): ")
# Classes of Spark's error conditions: data exceptions, and those that a query raises itself.
_ABOUT_DATA = re.compile(r"SQLSTATE: (?:22|P0)")
_MISSING_CODE = re.compile(r"DATA_SOURCE_NOT_FOUND|ClassNotFound|No suitable driver")
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
        return _short(_CONDITION.sub("", head)) + where
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in text:
        # From a Python function: its own exception is the last line that is not indented.
        own = [
            line for line in text.split("\n\tat ")[0].splitlines() if re.match(r"[\w.]+: ", line)
        ]
        return _short(own[-1] if own else lines[-1])
    first = lines[0] if lines else type(error).__name__
    return _short(_CONDITION.sub("", _STATE.sub("", _CLASS.sub("", first))))


def may_be_a_records_fault(error: Exception) -> bool:
    """Whether the query could succeed with another record; if not, Spark itself is failing."""
    if isinstance(error, PythonException):
        return "worker exited unexpectedly" not in str(error)
    if not isinstance(error, PySparkException | Py4JJavaError):
        return False
    text = _text(error).split("\n\tat ")[0]
    # An error about data may quote the data, and so contain any text.
    return _ABOUT_DATA.search(text) is not None or _NO_RECORDS_FAULT.search(text) is None


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
    if java is None:
        return str(error)
    text, cause = str(java.toString()), java.getCause()
    while cause is not None:
        if str(cause.getMessage()).startswith("["):
            text = str(cause.toString())
        cause = cause.getCause()
    return text


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _LONGEST)
