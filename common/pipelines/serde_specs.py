"""How keys and values of a topic are written, as values: a serde's name, or one with schemas."""

from __future__ import annotations

from typing import Literal

from kafka_pipeline.common.typed_json import Count, Strict

SchemaKind = Literal["avro", "json_schema", "protobuf"]
EventPart = Literal["", "debezium", "debezium_changes", "debezium_key"]


class SchemaSerde(Strict, frozen=True, kw_only=True):
    """A serde whose schemas are in the schema registry.

    Without a `subject`, it is that of the topic, `<topic>-key` or `<topic>-value`. Without a
    `schema`, its text, or a `version` of the subject, records are written by the subject's latest
    one and read by their own. `message` is a reference to the class of protobuf messages. Schemas
    are registered only if `register` says so. Change events of Debezium are read as `events` says,
    the name of a serde that does so with JSON.
    """

    kind: SchemaKind
    subject: str = ""
    schema: str = ""
    version: Count = 0
    message: str = ""
    register: bool = False
    events: EventPart = ""

    def __str__(self) -> str:
        """Return the name for messages."""
        name = f"{self.events} in {self.kind}" if self.events else self.kind
        return f"{name} of {self.subject}" if self.subject else name


AnySerde = str | SchemaSerde
"""The name of a serde of the engine, or a serde with schemas."""
