"""Checks a setting with librdkafka, without a client and without a broker."""

from __future__ import annotations

import re

from confluent_kafka import Consumer, KafkaException, Producer

from kafka_pipeline.common.config.kafka_settings import OAUTH_CALLBACK

_END = "none.of.librdkafkas"
_PLUGINS = "plugin.library.paths"
"""Not checked here: librdkafka would load and run these libraries."""
_UNKNOWN = "No such configuration property"
_NO_NUMBER = "Invalid value for configuration property"
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(rf"{_WHOLE.pattern}(\.[0-9]+)?")


def setting_problem(name: str, value: str) -> str | None:
    """Return why a setting of `kafka:` is wrong; `None` if librdkafka takes it as it is written.

    librdkafka takes settings one after the other, and the last one here does not exist. So no
    client is made: no thread, no connection, and no file that the setting names is read.
    """
    plain = name.removeprefix("consumer.").removeprefix("producer.").removeprefix("admin.")
    if plain in (OAUTH_CALLBACK, _PLUGINS):
        return None
    is_of_consumer = name.startswith("consumer.")
    reason = _refusal(plain, value, is_of_consumer)
    if reason.startswith(_UNKNOWN):
        return "librdkafka has no such setting"
    if not reason and _refusal(plain, "x", is_of_consumer).startswith(_NO_NUMBER):
        # Of a number, librdkafka reads the start, in the manner of C: 1_000 as 1, and 010 as 8.
        is_whole = _refusal(plain, ".5", is_of_consumer).startswith(_NO_NUMBER)
        if not (_WHOLE if is_whole else _DECIMAL).fullmatch(value):
            return f"must be {'a whole number' if is_whole else 'a number'}, got {value}"
    return reason or None


def _refusal(name: str, value: str, is_of_consumer: bool) -> str:
    """Return why librdkafka refuses a setting; "" if it accepts it."""
    client = Consumer if is_of_consumer else Producer
    settings = {"group.id": "g"} if is_of_consumer else {}
    try:
        client({**settings, name: value, _END: ""})
    except (KafkaException, TypeError, ValueError) as error:
        found = error.args[0]
        reason = str(found.str() if isinstance(error, KafkaException) else found).strip()
        return "" if _END in reason else reason
    raise AssertionError(f"librdkafka takes {_END}")
