"""What all clients share: their configuration and what their errors mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from confluent_kafka import KafkaError, KafkaException

from common.config import Config
from common.errors import ConfigError

T = TypeVar("T")
ClientKind = Literal["consumer", "producer", "admin"]
Partition = tuple[str, int]

_KINDS = ("consumer.", "producer.", "admin.")

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
_HOPELESS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)


class FencedError(Exception):
    """A newer producer has this transactional id. The caller drops its producer."""


class HopelessError(Exception):
    """Trying again cannot help: a missing topic, a missing right, a lost offset.

    The caller reports the task as failed, with this text as the reason.
    """


class TransactionFailedError(Exception):
    """The transaction will not commit. The caller drops the producer and replays the input."""


def client_config(config: Config, kind: ClientKind, **settings: Any) -> dict[str, Any]:
    """Return librdkafka settings: the engine's, over those that `kafka:` of config.yaml passes on.

    A pass-through name without prefix is for every client; `consumer.`, `producer.` and `admin.`
    narrow it to one kind.
    """
    merged: dict[str, Any] = {"bootstrap.servers": config.bootstrap_servers}
    for prefix in ("", f"{kind}."):
        for name, value in config.kafka.items():
            if prefix and name.startswith(prefix):
                merged[name.removeprefix(prefix)] = value
            elif not prefix and not name.startswith(_KINDS):
                merged[name] = value
    merged.update({name.replace("_", "."): value for name, value in settings.items()})
    merged["logger"] = _logger()
    return merged


def _logger() -> logging.Logger:
    logger = logging.getLogger("librdkafka")
    logger.addFilter(_is_news)
    return logger


def _is_news(record: logging.LogRecord) -> bool:
    """Drop what librdkafka cries out about transactions: the caller gets it as an exception."""
    return not record.getMessage().startswith(("TXNERR", "FATAL", "GETPID"))


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
        return HopelessError(error.str())
    return TransactionFailedError(error.str())


def retry(call: Callable[[float], T], timeout_s: float) -> T:
    """Make a call that takes a timeout, again while librdkafka says that it may be repeated.

    A repeated call resumes the same operation, which goes on in the background meanwhile.
    Blocks up to `timeout_s`. Raises what `translate` makes of the final error.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            return call(max(left, 0.1))
        except KafkaException as exception:
            error = exception.args[0]
            if left <= 0 or not (error.retriable() or error.code() in _PASSING):
                raise translate(exception) from exception
            time.sleep(min(0.05, max(left, 0)))
