"""The lookup tables of queries as values: those that Spark reads, and those that follow topics."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.common.pipelines.serde_specs import AnySerde
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.common.typed_json import Count, Name, Positive, Strict

CHANGES_STORE = "changes"
"""The store of what a query keeps of the keys of change events; see `changes_name`."""


class TableSpec(Strict, frozen=True, kw_only=True):
    """A lookup table of a query; it is read again every `refresh_s` seconds, or never if 0."""

    format: str
    path: str = ""
    schema: str = ""
    options: Mapping[str, str] = {}
    refresh_s: Count = 0


class TopicTableSpec(Strict, frozen=True, kw_only=True):
    """A lookup table of a query that holds the last record of each key of a topic.

    `topic` is one of the processor's names in `from`. If the table `is_global`, all tasks have the
    whole table, and `topic` is the name in Kafka. With a `schema`, in Spark's DDL, values are JSON;
    otherwise, they form one column. With `history_ms`, former records of each key are kept for so
    long, in a versioned store. The topic `has_changes` if its records are change events. `key` and
    `value` say how those of a global table are written.
    """

    topic: Name
    schema: str = ""
    is_global: bool = False
    history_ms: Positive | None = None
    has_changes: bool = False
    key: AnySerde = BYTES
    value: AnySerde = BYTES

    @property
    def has_history(self) -> bool:
        """Whether the store is versioned."""
        return self.history_ms is not None

    def store_of(self, table: str) -> str:
        """Return the name of the store if the table has this name."""
        return self.store_name(table, has_history=self.has_history)

    def stores_of(self, table: str) -> tuple[str, ...]:
        """Return the names of all stores of the table, with that of the keys of change events."""
        found = (self.store_of(table),)
        return (*found, self.changes_name(table)) if self.has_changes else found

    @staticmethod
    def changes_name(table: str) -> str:
        """Return the name of the store of what is kept of the keys of a table's change events."""
        return f"{CHANGES_STORE}-{table}"

    @staticmethod
    def store_name(table: str, *, has_history: bool) -> str:
        """Return the name of a table's store. Names of tables never contain a `-`."""
        return f"table-{table}-history" if has_history else f"table-{table}"
