"""Tokens for SASL/OAUTHBEARER from a function of user code."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from kafka_pipeline.common.code.error_words import class_name
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.code.user_frames import place_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.kafka_settings import OAUTH_CALLBACK
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.monitoring.counted_log import CountedLog

_PARTS: dict[str, type | tuple[type, ...]] = {
    "token": str,
    "expiry": (int, float),
    "principal": str,
    "extensions": dict,
}
"""The types of the parts of the function's result, of which the last two may be missing."""
_LATEST_S = 32_503_680_000
"""The year 3000. Milliseconds would be later, and infinity is none that librdkafka can have."""

logger = structlog.get_logger()


class TokenCallback:
    """The `oauth_cb` of one client: asks the function that config.yaml names for each token.

    librdkafka calls it on a thread of its own, when four fifths of a token's life have passed. If
    that fails, it asks again every 10 s, and the client continues with its open connections. Errors
    leave out the message of the function's exception, which may quote a token.
    """

    def __init__(self, reference: str, function: Callable[[str], Any]) -> None:
        self._what = f"{OAUTH_CALLBACK} {reference}"
        self._function = function
        self._first: tuple[Any, ...] | None = None
        self._failures = CountedLog(logger, "no new token for Kafka")

    @classmethod
    def of(cls, config: Config, reference: str) -> TokenCallback:
        """Import the function. Raises ConfigError if `modules` does not list or contain it."""
        try:
            function = UserCode.of(config).load(reference)
        except ConfigError as error:
            raise ConfigError(f"kafka: in config.yaml: {OAUTH_CALLBACK}: {error}") from error
        return cls(reference, function)

    def prepare(self, config: str) -> None:
        """Get the first token of a client that is about to be made.

        Raises `UnavailableError` with the reason if there is none; librdkafka would give no reason.
        """
        self._first = self._ask(config)

    def __call__(self, config: str) -> tuple[Any, ...]:
        """Return a token in confluent-kafka's form. Raises `UnavailableError` if there is none.

        `config` is the setting `sasl.oauthbearer.config`.
        """
        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            return self._ask(config)
        except UnavailableError as error:
            self._failures.add(str(error))
            raise

    def _ask(self, config: str) -> tuple[Any, ...]:
        try:
            found = self._function(config)
        except BaseException as raised:
            error = as_exception(raised)
            place = f" at {where}" if (where := place_of(error)) else ""
            raise UnavailableError(
                f"{self._what} raised {class_name(error)}{place}, so there is no token for Kafka. "
                "Its message is left out, since it may quote one"
            ) from None
        problem = _problem(found)
        if problem:
            raise UnavailableError(f"{self._what} {problem}, so there is no token for Kafka")
        return tuple(found)


def _problem(found: Any) -> str:
    """Return what is wrong with the answer of the function, without quoting it; "" if nothing."""
    if not isinstance(found, tuple) or not 2 <= len(found) <= len(_PARTS):
        got = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
        return (
            "must return (token, expiry in seconds since 1970[, principal[, extensions]]), and "
            f"returned {got}"
        )
    for (name, kind), item in zip(_PARTS.items(), found, strict=False):
        if not isinstance(item, kind) or isinstance(item, bool):
            return f"returned {type(item).__name__} as the {name}"
    if not found[1] < _LATEST_S:
        return (
            "returned an expiry that is not in seconds since 1970, so the token would never be "
            "renewed"
        )
    if found[1] <= time.time():
        return "returned a token that has expired"
    return ""
