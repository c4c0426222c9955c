"""The JSON Schema of config.yaml, from its keys."""

from __future__ import annotations

from kafka_pipeline.common.config.config_keys import CONFIG_KEYS
from kafka_pipeline.common.config.expansion import REFERENCE_PATTERN
from kafka_pipeline.common.config.keys import FILLED, SCHEMA_VERSION, Schema, map_schema

_REFERENCE: Schema = {"type": "string", "pattern": REFERENCE_PATTERN}


def config_schema() -> Schema:
    """Return the schema: a map, or a list of maps with one key each, as in the original.

    It knows nothing of the environment, and compares no key with another one.
    """
    as_map = map_schema(CONFIG_KEYS)
    keys = {name: _expandable(schema) for name, schema in as_map["properties"].items()}
    return {
        "$schema": SCHEMA_VERSION,
        "title": "config.yaml",
        "definitions": {"keys": keys},
        "if": {"type": "array"},
        "then": {
            "items": {**as_map, "properties": _references(keys), "minProperties": 1}
            | {"maxProperties": 1, "required": []},
            "allOf": [{"contains": {"required": [name]}} for name in as_map["required"]],
        },
        "else": {**as_map, "properties": _references(keys)},
    }


def _references(keys: Schema) -> Schema:
    return {name: {"$ref": f"#/definitions/keys/{name}"} for name in keys}


def _expandable(schema: Schema) -> Schema:
    """Return a schema that also accepts strings with `${VAR}`, wherever a value may be."""
    if "properties" in schema:
        inside = {name: _expandable(each) for name, each in schema["properties"].items()}
        return {**schema, "properties": inside}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_expandable(each) for each in schema["anyOf"]]}
    if "items" in schema:
        return {**schema, "items": _expandable(schema["items"])}
    if schema.get("type") == "object" or schema.get("pattern") == FILLED:
        return schema
    shown: Schema = {name: schema[name] for name in ("description", "default") if name in schema}
    rest = {name: each for name, each in schema.items() if name not in shown}
    return {**shown, "anyOf": [rest, _REFERENCE]}
