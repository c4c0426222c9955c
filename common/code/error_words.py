"""The words of an error that logs, statuses and dead letters may show.

Messages of exceptions often quote data, as in `invalid literal for int() with base 10: '4111'`. By
default, only messages without data are shown: the engine's own, and those made of names and
literals in the code. `log_record_values` shows all messages.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Callable, Iterator
from http.client import responses
from types import CodeType, TracebackType
from typing import Any

from kafka_pipeline.common.code.engine_code import is_engine_file, module_shown
from kafka_pipeline.common.errors import OwnError, message_of
from kafka_pipeline.common.suggest import counted

HOW_TO_SHOW = "log_record_values: true shows its message"

_FIXED = frozenset(
    (
        "an integer is required",
        "bytearray index out of range",
        "cannot convert float NaN to integer",
        "cannot convert float infinity to integer",
        "complex division by zero",
        "deque index out of range",
        "division by zero",
        "float division by zero",
        "float floor division by zero",
        "float modulo",
        "index out of range",
        "int too large to convert to float",
        "integer division or modulo by zero",
        "integer modulo by zero",
        "list assignment index out of range",
        "list index out of range",
        "math domain error",
        "math range error",
        "maximum recursion depth exceeded",
        "not all arguments converted during string formatting",
        "not enough arguments for format string",
        "pop from an empty deque",
        "pop from empty list",
        "range object index out of range",
        "string index out of range",
        "tuple index out of range",
    )
)
"""Messages of Python that contain no data."""

# These patterns quote only names of types, functions and parameters, as Python's TypeErrors do. The
# name of an unexpected argument is not among them: it may come from a record.
_NAME = r"[A-Za-z_][\w.<>]*"
_ABOUT_TYPES = re.compile(
    "|".join(
        pattern.replace("NAMES", f"'{_NAME}'(?:(?:, | and |, and )'{_NAME}')*").replace(
            "NAME", _NAME
        )
        for pattern in (
            r"unsupported operand type\(s\) for [^\s\w]{1,3}(?: or \w+\(\))?: NAMES",
            r"'[^\s\w]{1,2}' not supported between instances of NAMES",
            r"bad operand type for (?:unary \S|abs\(\)): 'NAME'",
            r'can only concatenate NAME \(not "NAME"\) to NAME',
            r"can't concat NAME to NAME",
            r"can't multiply sequence by non-int of type 'NAME'",
            r"'NAME' object is not (?:an iterator|a mapping|awaitable|callable|iterable|reversible"
            r"|subscriptable)",
            r"'NAME' object does not support (?:item (?:assignment|deletion)|the (?:asynchronous )?"
            r"context manager protocol)",
            r"'NAME' object cannot be interpreted as an integer",
            r"(?:NAME\(\) )?argument (?:\d{1,2} |'NAME' )?must be [a-z, -]+, not '?NAME'?",
            r"(?:NAME|byte) indices must be integers(?: or slices)?, not '?NAME'?",
            r"argument of type 'NAME' is not (?:a container or )?iterable",
            r"cannot unpack non-iterable NAME object",
            r"cannot use 'NAME' as a (?:dict key|set element) \(unhashable type: 'NAME'\)",
            r"unhashable type: 'NAME'",
            r"object of type 'NAME' has no len\(\)",
            r"a bytes-like object is required, not 'NAME'",
            r"must be (?:real number|str|str or None), not NAME",
            r"expected string or bytes-like object(?:, got 'NAME')?",
            r"sequence item \d{1,9}: expected NAME instance, NAME found",
            r"the JSON object must be str, bytes or bytearray, not NAME",
            r"Object of type NAME is not JSON serializable",
            r"NAME\(\) missing \d+ required (?:positional|keyword-only) arguments?: NAMES",
            r"NAME\(\) takes (?:from \d+ to |no )?\d* ?(?:positional )?arguments?"
            r"(?: but|\() ?\d+ (?:was|were)? ?given\)?",
            r"NAME\(\) takes no (?:keyword )?arguments(?: \(\d+ given\))?",
        )
    )
)
# The names that these patterns quote are shown if they are in the code.
_ABOUT_NAMES = re.compile(
    "|".join(
        pattern.replace("NAME", _NAME)
        for pattern in (
            r"(?:type object |module )?'NAME'(?: object)? has no attribute '(\w+)'",
            r"name '(\w+)' is not defined",
            r"cannot access (?:local|free) variable '(\w+)' where it is not associated with a "
            r"value(?: in enclosing scope)?",
            r"No module named '([\w.]+)'",
            r"cannot import name '(\w+)' from (?:partially initialized module )?'NAME' \(.*\)",
        )
    )
)

_HTTP_CLIENTS = frozenset(("aiohttp", "httpx", "requests", "urllib"))
"""Packages whose errors about a response have its status."""

_TOO_DEEP = ("maximum recursion depth exceeded while ", "Stack overflow (used ")
"""How Python begins to say that it is too deep in its own C code; the latter since Python 3.14."""


def words_of(error: BaseException, *, with_values: bool) -> str:
    """Return an error's message; without values, only what cannot quote a record, perhaps ""."""
    if isinstance(error, BaseExceptionGroup):
        return _words_of_group(error, with_values=with_values)
    if with_values:
        return message_of(error)
    if isinstance(error, OwnError) and (
        error.is_on_purpose or error.says_what_is_shown or _is_raised_by_engine(error)
    ):
        return error.shown
    message = message_of(error)
    if not message or message in _FIXED:
        return message
    codes = _codes(error.__traceback__)
    if _is_literal(error, message, codes):
        return message
    match error:
        case OSError(errno=int(number)) if _has_words_of_system(error, number):
            return f"[Errno {number}] {error.strerror}"
        case TypeError() if _ABOUT_TYPES.fullmatch(message):
            return message
        case AttributeError() | NameError() | ImportError():
            return message if _has_names_of(codes, message) else ""
        case RecursionError() if message.startswith(_TOO_DEEP):
            return message
    return _http_status(error)


def _has_words_of_system(error: OSError, number: int) -> bool:
    # Other numbers may be too large for the system.
    return number in errno.errorcode and error.strerror == os.strerror(number)


def _words_of_group(group: BaseExceptionGroup[BaseException], *, with_values: bool) -> str:
    """Return how many errors a group has, and what the first one is that is not a group itself.

    The message of a group says little: `unhandled errors in a TaskGroup`.
    """
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    count = len(group.exceptions)
    which = "" if count == 1 else ", the first"
    return f"{counted(count, 'error')}{which}: {described(first, with_values=with_values)}"


def _http_status(error: BaseException) -> str:
    """Return the status of the response that an HTTP client's error is about, with its phrase.

    Only instance variables are read, as properties of user code could raise.
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if _HTTP_CLIENTS.isdisjoint(packages):
        return ""
    own = vars(error)
    response = getattr(own.get("response"), "__dict__", {})
    for found in (own.get("status"), own.get("code"), response.get("status_code")):
        if type(found) is int and 100 <= found <= 599:
            return f"HTTP {found} {responses.get(found, '')}".rstrip()
    return ""


def described(error: BaseException, *, with_values: bool) -> str:
    """Return an error's class and words, like the last line of a traceback."""
    words = words_of(error, with_values=with_values)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def hides_words(error: BaseException, *, with_values: bool) -> bool:
    """Whether an error has words that `words_of` leaves out."""
    return not with_values and words_of(error, with_values=False) != message_of(error)


def traceback_of(error: BaseException, *, with_values: bool) -> str:
    """Return the traceback of an error as Python prints it.

    Without values, its messages are those of `words_of`, and notes are left out. Local variables
    never appear.
    """
    if with_values:
        return "".join(traceback.format_exception(error)).rstrip("\n")
    return "\n".join(_traceback(error, set()))


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class as Python shows it."""
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{module_shown(kind)}.{kind.__qualname__}"
    )


def _traceback(error: BaseException, seen: set[int]) -> Iterator[str]:
    # A loop: code that wraps errors as it recurses makes chains of a thousand.
    chain: list[tuple[BaseException, str]] = []
    before: BaseException | None = error
    link = ""
    while before is not None:
        seen.add(id(before))
        chain.append((before, link))
        before, link = _before(before, seen)
    for each, link in reversed(chain):
        yield from _alone(each, seen)
        if link:
            yield link


def _before(error: BaseException, seen: set[int]) -> tuple[BaseException | None, str]:
    """Return the error that led to another one, and the words between them."""
    cause, context = error.__cause__, error.__context__
    if cause is not None and id(cause) not in seen:
        return cause, "\nThe above exception was the direct cause of the following exception:\n"
    if context is not None and not error.__suppress_context__ and id(context) not in seen:
        return context, "\nDuring handling of the above exception, another exception occurred:\n"
    return None, ""


def _alone(error: BaseException, seen: set[int]) -> Iterator[str]:
    """Yield the lines of an error without those that led to it."""
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):"
        yield "".join(traceback.format_tb(error.__traceback__)).rstrip("\n")
    words = words_of(error, with_values=False)
    yield f"{class_name(error)}: {words}" if words else class_name(error)
    if isinstance(error, BaseExceptionGroup):
        for number, each in enumerate(error.exceptions, 1):
            yield f"  +---------------- {number} ----------------"
            for lines in _traceback(each, seen):
                yield from (f"  | {line}" for line in lines.splitlines())


def _is_raised_by_engine(error: BaseException) -> bool:
    """Whether the engine raised this error, or created it without raising it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is None or is_engine_file(at.tb_frame.f_code.co_filename)


def _codes(at: TracebackType | None) -> list[CodeType]:
    """Return the code on the stack that is from files; other code may be from a record (`eval`)."""
    found = []
    while at is not None:
        code = at.tb_frame.f_code
        if not code.co_filename.startswith("<"):
            found.append(code)
        at = at.tb_next
    return found


def _is_literal(error: BaseException, message: str, codes: list[CodeType]) -> bool:
    """Whether a message, or the key that a KeyError quotes, is a literal in the code."""
    text = error.args[0] if type(error) is KeyError and len(error.args) == 1 else message
    if type(text) is not str:
        return False
    return any(text in code.co_consts for code in codes)


def is_literal(text: str, function: Callable[..., Any]) -> bool:
    """Whether a string is a literal in the code of a function."""
    code = getattr(function, "__code__", None)
    return code is not None and text in code.co_consts


def _has_names_of(codes: list[CodeType], message: str) -> bool:
    found = _ABOUT_NAMES.fullmatch(message)
    if found is None:
        return False
    name = next(filter(None, found.groups()))
    known = {
        each
        for code in codes
        for names in (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars)
        for each in names
    }
    return name in known or any(each.startswith(f"{name}.") for each in known)
