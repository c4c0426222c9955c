"""The `kafka:` section of config.yaml: librdkafka settings that the engine leaves to the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kafka_pipeline.common.config.keys import FILLED, Schema
from kafka_pipeline.common.config.yaml_positions import Pair, Problems, Scalar, describe

PREFIXES = ("consumer.", "producer.", "admin.")
"""A setting with a prefix goes to that kind of client only, any other to all clients."""

_BOOTSTRAP_SERVERS = "bootstrap.servers"

OAUTH_CALLBACK = "sasl.oauthbearer.callback"
"""Names a function of user code that returns tokens, `module:function`. The setting is the
engine's: librdkafka itself takes a function object."""

_PYTHON = "it takes an object of Python, which a file cannot have"
_OWNED = {
    "transactional.id": "each task has its own, made from job_name and the task's id",
    "group.id": "it is made from job_name",
    "isolation.level": "exactly-once needs read_committed",
    "enable.auto.commit": "offsets are committed in the transaction of their results",
    "enable.auto.offset.store": "offsets are committed in the transaction of their results",
    "auto.offset.reset": "a task starts at the earliest record, and never skips one after that",
    "enable.idempotence": "transactions need it on",
    "acks": "transactions need all replicas to acknowledge",
    "request.required.acks": "transactions need all replicas to acknowledge",
    "partitioner": "keys must land on the same partitions as with Java clients",
    "enable.partition.eof": "the engine finds the end of a partition by itself",
    "transaction.timeout.ms": "use the key transaction_timeout_ms of config.yaml",
    "metadata.broker.list": f"use {_BOOTSTRAP_SERVERS}",
    "logger": "log_format and log_level of config.yaml say how it logs",
    "default.topic.config": "write its settings next to the others",
    "oauth_cb": f"name a function: {OAUTH_CALLBACK}: module:function",
    "on_commit": _PYTHON,
    "on_delivery": _PYTHON,
    "delivery.report.only.error": _PYTHON,
}
_REFUSED = "|".join(map(re.escape, sorted(_OWNED)))
KAFKA_SCHEMA: Schema = {
    "type": "object",
    "properties": {_BOOTSTRAP_SERVERS: {"type": "string", "pattern": FILLED}},
    "propertyNames": {
        "not": {
            "pattern": rf"^({'|'.join(map(re.escape, PREFIXES))})?({_REFUSED}|.*_cb)$"
            rf"|^({'|'.join(map(re.escape, PREFIXES))}){re.escape(_BOOTSTRAP_SERVERS)}$"
        }
    },
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
"""The JSON Schema of the section."""


SettingProblem = Callable[[str, str], str | None]
"""Returns why a setting, given by name and value, is wrong; `None` if it is right."""


def read_kafka_settings(
    pairs: Iterable[Pair], problems: Problems, wrong: SettingProblem | None
) -> dict[str, str]:
    """Return the settings with their names and values as written, prefixes included.

    Values are strings, which librdkafka accepts for all settings: `sasl.password: 012345` must not
    become a number. `wrong` checks each setting; without it, librdkafka checks when clients are
    made.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        reason = _refusal(pair.key)
        if reason:
            problems.add(pair.at, f'kafka setting "{pair.key}" belongs to the engine: {reason}')
        elif problems.found_at(pair.value):
            continue
        elif not isinstance(pair.value, Scalar) or pair.value.value is None:
            problems.add(
                pair.value,
                f'kafka setting "{pair.key}" must be a string, a number, true or false, '
                f"got {describe(pair.value)}",
            )
        elif pair.key == _BOOTSTRAP_SERVERS and not _is_filled_text(pair.value):
            problems.add(pair.value, f'kafka setting "{pair.key}" must be host:port[,host:port …]')
        else:
            value = pair.value.value
            settings[pair.key] = value if isinstance(value, str) else pair.value.text
            if wrong is not None and (why := wrong(pair.key, settings[pair.key])):
                problems.add(pair.at, f'kafka setting "{pair.key}": {why}')
    return settings


def _refusal(key: str) -> str | None:
    name = key
    for prefix in PREFIXES:
        name = name.removeprefix(prefix) if name == key else name
    if name == _BOOTSTRAP_SERVERS and name != key:
        return f"all clients use one cluster; write {_BOOTSTRAP_SERVERS} without a prefix"
    return _OWNED.get(name) or (_PYTHON if name.endswith("_cb") else None)


def _is_filled_text(value: Scalar) -> bool:
    return isinstance(value.value, str) and bool(value.value.strip())
