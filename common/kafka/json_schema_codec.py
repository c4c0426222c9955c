"""JSON by the schemas of a registry: Confluent's classes, with exact JSON and exact multiples.

References may be relative to the schema that has them, too, and lead nowhere outside the registry.

Needs the extra `schemaregistry`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from urllib.parse import urljoin

from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from jsonschema import ValidationError  # type: ignore[import-untyped,unused-ignore]
from jsonschema.validators import extend  # type: ignore[import-untyped,unused-ignore]
from referencing import Registry

from kafka_pipeline.common import json_text
from kafka_pipeline.common.kafka.misfit import MisfitError


def _multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Iterator[Any]:
    """Compare numbers as they are written: by floats, 19.99 would not be a multiple of 0.01."""
    if validator.is_type(value, "number"):
        quotient = Fraction(str(value)) / Fraction(str(factor))
        if quotient.denominator != 1:
            yield ValidationError(f"it is not a multiple of {factor}")


class _ExactChecks:
    """Replaces the validators of one of Confluent's classes, which keeps them by schema."""

    def _get_validator(self, schema: Any, parsed: Any, registry: Any) -> Any:
        found = super()._get_validator(schema, parsed, registry)  # type: ignore[misc]
        if found.VALIDATORS.get("multipleOf") is _multiple_of:
            return found
        # Confluent's registry would ask any URL that a "$ref" names for a schema.
        named = Registry().with_resources((name, registry[name]) for name in registry)
        if isinstance(parsed, dict) and "$id" in parsed:
            # A "$ref" is relative to that, and references have the names that are written there.
            near = ((urljoin(parsed["$id"], name), named[name]) for name in named)
            named = named.with_resources(near)
        exact = extend(type(found), {"multipleOf": _multiple_of})(parsed, registry=named)
        self._validators[schema] = exact  # type: ignore[attr-defined]
        return exact


class JsonSchemaWriter(_ExactChecks, JSONSerializer):
    """Writes values that a schema allows. Raises `MisfitError` for what JSON does not have."""

    def __init__(self, schema: str | None, client: Any, settings: Any) -> None:
        super().__init__(schema, client, conf=settings, json_encode=_written)


class JsonSchemaReader(_ExactChecks, JSONDeserializer):
    """Reads JSON that a schema allows. Raises `MisfitError` for what is not JSON."""

    def __init__(self, schema: str | None, client: Any, settings: Any) -> None:
        super().__init__(schema, schema_registry_client=client, conf=settings, json_decode=_read)


def _written(value: Any) -> str:
    """Return JSON that is read back as the same value, in which no name comes twice."""
    try:
        text = json_text.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise MisfitError("it is not JSON: a number in it is not finite") from None
    if json_text.coerced_names(value, text):
        raise MisfitError("it is not JSON: a name in it is not a string")
    return text


def _read(data: bytes) -> Any:
    try:
        return json_text.decode(data.decode())
    except UnicodeError:
        raise MisfitError("they are not JSON in UTF-8") from None
    except ValueError as error:
        raise MisfitError(f"they are not JSON: {error}") from None
