"""What is said of an exception: of clients' errors, groups, causes, and those that say nothing."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.streams.engine.user_errors import Explanation

CARD = "4111-1111"


class ClientResponseError(Exception):
    """Has the shape of aiohttp's error of that name, whose message quotes the URL."""

    __module__ = "aiohttp.client_exceptions"

    def __init__(self, status: Any) -> None:
        self.status = status

    def __str__(self) -> str:
        return f"{self.status}, message='', url='https://shop/cards/{CARD}'"


class OfRequests(Exception):
    """Has the shape of HTTPError of requests, and of HTTPStatusError of httpx."""

    __module__ = "requests.exceptions"

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} for url {CARD}")
        self.response = SimpleNamespace(status_code=status)


class Own(ClientResponseError):
    """A user's class below that of a client."""

    __module__ = "shop"


class Order(Exception):
    """A user's class whose status is that of the order."""

    __module__ = "shop"

    def __init__(self) -> None:
        super().__init__(CARD + "!")
        self.status = 404


class Wordless(Exception):
    """Cannot be written."""

    def __str__(self) -> str:
        raise RuntimeError(CARD)


def of_urllib(status: int) -> HTTPError:
    return HTTPError(f"https://shop/cards/{CARD}", status, CARD, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ClientResponseError(503), "ClientResponseError: HTTP 503 Service Unavailable"),
        (ClientResponseError(599), "ClientResponseError: HTTP 599"),
        (ClientResponseError(4111), "ClientResponseError"),
        (ClientResponseError(CARD), "ClientResponseError"),
        (Own(429), "Own: HTTP 429 Too Many Requests"),
        (OfRequests(404), "OfRequests: HTTP 404 Not Found"),
        (of_urllib(500), "HTTPError: HTTP 500 Internal Server Error"),
        (Order(), "Order"),
        (Wordless(), "Wordless"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("\n" * 9 + CARD * 100_000), "ValueError"),
        (
            OSError(errno.ENOENT, "No such file or directory", CARD),
            "FileNotFoundError: [Errno 2] No such file or directory",
        ),
        (OSError(2**40, CARD), "OSError"),
        (
            ExceptionGroup("of tasks", [ClientResponseError(404)]),
            "ExceptionGroup: 1 error: ClientResponseError: HTTP 404 Not Found",
        ),
        (
            ExceptionGroup(
                "of tasks", [ExceptionGroup(CARD, [ValueError(CARD + "!")]), TimeoutError()]
            ),
            "ExceptionGroup: 2 errors, the first: ValueError",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_quote_a_record_is_said(error: BaseException, said: str) -> None:
    assert described(error, with_values=False) == said


def test_a_group_says_which_errors_it_has_with_values_too() -> None:
    error = ExceptionGroup("of tasks", [ValueError(CARD), TimeoutError()])
    said = described(error, with_values=True)
    assert said == f"ExceptionGroup: 2 errors, the first: ValueError: {CARD}"
    assert described(Wordless(), with_values=True) == "Wordless: its __str__ raised RuntimeError"


def reason(error: Exception, *causes: Exception, with_values: bool = False) -> str:
    """Return the reason of an error that was raised from causes, the next one first."""
    each: BaseException = error
    for cause in causes:
        each.__cause__ = cause
        each = cause
    return Explanation(error, with_values=with_values).reason


def test_an_error_that_says_nothing_is_said_with_the_first_cause_that_does() -> None:
    cause = ClientResponseError(503)
    said = ", caused by ClientResponseError: HTTP 503 Service Unavailable"
    hint = "; log_record_values: true shows its message"
    assert reason(LookupError(f"no {CARD}"), cause) == f"LookupError{said}{hint}"
    assert reason(LookupError(), KeyError(CARD), cause) == f"LookupError{said}"
    assert reason(LookupError(), KeyError(CARD), OSError()) == "LookupError, caused by KeyError"
    assert reason(LookupError(CARD), cause, with_values=True) == f"LookupError: {CARD}"
    shown = f"LookupError, caused by ClientResponseError: {cause}"
    assert reason(LookupError(), cause, with_values=True) == shown


def test_causes_in_a_circle_have_an_end() -> None:
    one, other = LookupError(), KeyError()
    assert reason(one, other, one) == "LookupError, caused by KeyError"
