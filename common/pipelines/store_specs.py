"""The stores of users' classes, as values."""

from __future__ import annotations

from typing import Literal

from kafka_pipeline.common.typed_json import Count, Name, Positive, Strict

BYTES = "bytes"
"""The name of the serde that leaves bytes as they are."""

StoreType = Literal[
    "key_value", "timestamped_key_value", "window", "session", "versioned_key_value"
]


class StoreSpec(Strict, frozen=True, kw_only=True):
    """A store of a user's class; times, in ms, are `None` for store types without them.

    `upgrade` is a reference to a function that brings values of former formats to `format`, and
    `former` has the serdes of formats 1, 2 and so on; without any, all have `value`.
    """

    name: Name
    type: StoreType = "key_value"
    key: str = BYTES
    value: str = BYTES
    persistent: bool = True
    logged: bool = True
    retention_ms: Count | None = None
    window_size_ms: Count | None = None
    history_retention_ms: Count | None = None
    format: Positive = 1
    upgrade: str = ""
    former: tuple[str, ...] = ()
