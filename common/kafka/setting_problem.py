"""Checks a setting with librdkafka, without a client and without a broker."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer

from kafka_pipeline.common.config.kafka_settings import OAUTH_CALLBACK

_END = "none.of.librdkafkas"
_PLUGINS = "plugin.library.paths"
"""Not checked here: librdkafka would load and run these libraries."""
_UNKNOWN = "No such configuration property"


def setting_problem(name: str, value: str) -> str | None:
    """Return why librdkafka refuses a setting of `kafka:`; `None` if it accepts it.

    librdkafka takes settings one after the other, and the last one here does not exist. So no
    client is made: no thread, no connection, and no file that the setting names is read.
    """
    plain = name.removeprefix("consumer.").removeprefix("producer.").removeprefix("admin.")
    if plain in (OAUTH_CALLBACK, _PLUGINS):
        return None
    is_of_consumer = name.startswith("consumer.")
    client = Consumer if is_of_consumer else Producer
    settings = {"group.id": "g"} if is_of_consumer else {}
    try:
        client({**settings, plain: value, _END: ""})
    except (KafkaException, TypeError, ValueError) as error:
        found = error.args[0]
        reason = str(found.str() if isinstance(error, KafkaException) else found).strip()
        if _END in reason:
            return None
        if reason.startswith(_UNKNOWN):
            return "librdkafka has no such setting"
        return reason
    raise AssertionError(f"librdkafka takes {_END}")
