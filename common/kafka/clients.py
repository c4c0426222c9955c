"""What all clients share: their configuration and what their errors mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar

from confluent_kafka import KafkaError, KafkaException

from common.config import Config
from common.errors import ConfigError, EngineError
from common.kafka_settings import PREFIXES

T = TypeVar("T")
ClientKind = Literal["consumer", "producer", "admin"]
Partition = tuple[str, int]

GONE_AFTER_S = 10.0
"""How long a topic must be missing to be taken for deleted: brokers that start know less."""

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_MISSING_TOPIC = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
_UNCLEAR = frozenset({KafkaError.UNKNOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT})
_ANSWER_MS = 10_000
_CONNECT_NEWS_S = 10.0
_RIGHT = "a right is missing: grant it, then start the JobManager again"
_OFFSET = (
    "the offset to go on at is not in the topic: its record was deleted before it was processed, "
    "or the topic has lost its end"
)
# What to do is said where the error itself does not say it.
_HOPELESS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _RIGHT,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _RIGHT,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _RIGHT,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _RIGHT,
    KafkaError._AUTO_OFFSET_RESET: _OFFSET,
    KafkaError.OFFSET_OUT_OF_RANGE: _OFFSET,
    KafkaError.INVALID_TIMESTAMP: (
        "a topic refuses the time of a record: raise its message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms"
    ),
    KafkaError.INVALID_RECORD: (
        "a topic refuses a record: one without a key cannot go to a compacted topic"
    ),
}


class FencedError(EngineError):
    """A newer producer has this transactional id. The caller drops its producer."""


class HopelessError(EngineError):
    """Trying again cannot help: a missing topic, a missing right, a lost offset, a refused record.

    The caller reports the task as failed, with this text as the reason.
    """


class TransactionFailedError(EngineError):
    """The transaction will not commit. The caller drops the producer and replays the input."""


def client_config(config: Config, kind: ClientKind, **settings: Any) -> dict[str, Any]:
    """Return librdkafka settings: the engine's, over those that `kafka:` of config.yaml passes on.

    A pass-through name without prefix is for every client; `consumer.`, `producer.` and `admin.`
    narrow it to one kind.
    """
    merged: dict[str, Any] = {
        "bootstrap.servers": config.bootstrap_servers,
        # The default of 10 s is how long a client may be late after the brokers were away.
        "reconnect.backoff.max.ms": 1000,
        # The default of 60 s is how long a client may wait for a broker that hangs.
        "socket.timeout.ms": _ANSWER_MS,
    }
    for prefix in ("", f"{kind}."):
        for name, value in config.kafka.items():
            if prefix and name.startswith(prefix):
                merged[name.removeprefix(prefix)] = value
            elif not prefix and not name.startswith(PREFIXES):
                merged[name] = value
    merged.update({name.replace("_", "."): value for name, value in settings.items()})
    merged["logger"] = _logger()
    return merged


def _logger() -> logging.Logger:
    logger = logging.getLogger("librdkafka")
    logger.addFilter(_NEWS)
    return logger


class _News(logging.Filter):
    """Lets through what is worth a line in the log.

    Not what librdkafka cries out about transactions: the caller gets that as an exception. And
    while a broker is away, not each of the many attempts to connect to it, but one in ten seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told_s = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log a record."""
        message = record.getMessage()
        if "Connect to" not in message:
            return not message.startswith(("TXNERR", "FATAL", "GETPID"))
        is_due = time.monotonic() - self._told_s >= _CONNECT_NEWS_S
        if is_due:
            self._told_s = time.monotonic()
        return is_due


_NEWS = _News()


def lower(settings: dict[str, Any], name: str, most: int) -> None:
    """Set a number, unless `kafka:` of config.yaml has a smaller one."""
    with suppress(ValueError):  # librdkafka says what is wrong with it
        settings[name] = min(int(settings.get(name, most)), most)


def connect(client: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    """Make a client. Raises ConfigError for a setting of `kafka:` that librdkafka refuses."""
    try:
        return client(settings)
    except KafkaException as exception:
        raise ConfigError(f"kafka: in config.yaml: {exception.args[0].str()}") from exception


def translate(exception: KafkaException) -> Exception:
    """Return the error whose class says what the caller does about `exception`."""
    error = exception.args[0]
    if error.code() in _FENCED:
        return FencedError(error.str())
    if error.code() in _HOPELESS:
        return HopelessError(explain(error))
    return TransactionFailedError(error.str())


def explain(error: KafkaError) -> str:
    """Return the text of an error, with what it means for the user if that is known."""
    hint = _HOPELESS.get(error.code())
    return f"{error.str()} ({hint})" if hint else error.str()


def is_passing(error: KafkaError) -> bool:
    """Whether what a consumer reports about a partition may be gone at its next try.

    A missing topic is among that: brokers that start know less than they will. `TopicWatch` tells
    when it is gone for good.
    """
    return error.retriable() or error.code() in _PASSING | _MISSING_TOPIC | _UNCLEAR


def is_missing_topic(error: KafkaError) -> bool:
    """Whether the broker that answered does not know the topic, or not this one."""
    return error.code() in _MISSING_TOPIC


def retry(call: Callable[[float], T], timeout_s: float, waits_for_topic: bool = False) -> T:
    """Make a call that takes a timeout, again while librdkafka says that it may be repeated.

    A repeated call resumes the same operation, which goes on in the background meanwhile.
    With `waits_for_topic` also while a broker does not know a topic that was made just now.
    Blocks up to `timeout_s`. Raises what `translate` makes of the final error.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            return call(max(left, 0.1))
        except KafkaException as exception:
            error = exception.args[0]
            may_pass = (
                error.retriable()
                or error.code() in _PASSING
                or (waits_for_topic and is_missing_topic(error))
            )
            if left <= 0 or not may_pass:
                raise translate(exception) from exception
            time.sleep(min(0.05, max(left, 0)))
