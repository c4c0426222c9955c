"""What the columns of a query's inputs and lookup tables are called, as far as the file says."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.yaml_positions import Map, plain
from kafka_pipeline.streams.pipeline.kinds.spark import FORMAT, SCHEMA
from kafka_pipeline.streams.pipeline.kinds.tables import TABLES
from kafka_pipeline.streams.sql.schema_columns import OF_JSON, columns_of_schema
from kafka_pipeline.streams.sql.spec import COLUMNS

_OF_TABLES = frozenset({"key", "timestamp"})


class InputColumns:
    """The columns of what the query of an entry reads by name; `schemas` are those of sources."""

    def __init__(self, fields: Fields, schemas: Mapping[str, str]) -> None:
        self._format = fields.choice(FORMAT)
        given = fields.get(SCHEMA.name)
        own = given.pairs if isinstance(given, Map) else ()
        self._of_all = "" if given is None or own else str(plain(given))
        self._schemas = {name.lower(): schema for name, schema in schemas.items()}
        self._of_inputs = self._schemas | {pair.key.lower(): str(plain(pair.value)) for pair in own}
        self._tables = {pair.key.lower(): pair.value for pair in fields.pairs(TABLES)}

    def of(self, name: str) -> frozenset[str] | None:
        """Return the columns of an input or a table; `None` if they are not known here."""
        if name in self._tables:
            table = self._tables[name]
            pairs = table.pairs if isinstance(table, Map) else ()
            keys = {pair.key: str(plain(pair.value)) for pair in pairs}
            if "topic" not in keys:
                return columns_of_schema(keys["schema"]) if keys.get("schema") else None
            schema = keys.get("schema") or self._schemas.get(keys["topic"].lower(), "")
            own = columns_of_schema(schema) if schema else frozenset({"value"})
            return None if self._format == "avro" else own | _OF_TABLES
        if self._format not in ("json", "avro"):
            return frozenset(COLUMNS)
        schema = self._of_all or self._of_inputs.get(name, "")
        if not schema or self._format == "avro":
            return None
        return OF_JSON | columns_of_schema(schema)
