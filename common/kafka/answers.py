"""The answers of brokers to an admin client's requests, as futures."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.kafka.clients import MissingRightError, translate

_NO_ANSWER = frozenset((KafkaError._TIMED_OUT, KafkaError._TRANSPORT))


def is_unanswered(answer: Future[Any]) -> bool:
    error = answer.exception() if answer.done() else None
    return isinstance(error, KafkaException) and error.args[0].code() in _NO_ANSWER


def answer(future: Future[Any], right: str) -> Any:
    """Return an answer. If this `right` is missing, raise the error that says so."""
    try:
        return future.result()
    except KafkaException as exception:
        error = translate(exception)
        if isinstance(error, MissingRightError):
            raise error.naming(right) from exception
        raise
