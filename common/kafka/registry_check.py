"""Asks a registry whether its subjects have what serdes need, before tasks ask.

Needs the extra `schemaregistry`. Nothing is registered here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.schema_registry import (
    SchemaRegistry,
    registry_error,
    shared_client,
)

_LANGUAGES: Mapping[str, str] = {
    "avro": "AVRO",
    "json_schema": "JSON",
    "protobuf": "PROTOBUF",
}


class RegistryCheck:
    """Questions to one registry, each of which is asked once, without retries.

    A `kind` is `avro`, `json_schema` or `protobuf`. Methods return what is wrong in words, "" if
    nothing is. They raise `UnavailableError` if the registry does not answer.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        """Prepare; raises ConfigError without the extra, and for files that cannot be read."""
        of = SchemaRegistry.of(settings, register=False)
        self._registry = SchemaRegistry(of.url, {**of.settings, "max.retries": 0}, register=False)
        self._client = shared_client(self._registry)

    def writing_problem(
        self,
        kind: str,
        subject: str,
        schema: str,
        register: bool,
        version: int = 0,
    ) -> str:
        """Say why a serde could not write.

        `schema` is its text, or "" for a `version` of the subject, or for the latest one.
        """
        try:
            latest = self._latest(subject)
            if latest is not None and (problem := _other_language(kind, subject, latest)):
                return problem
            if register and (schema or kind == "protobuf"):
                return self._compatibility_problem(kind, subject, schema, latest)
            if latest is None:
                return f'the schema registry has no subject "{subject}": register its schema'
            if version and self._version(subject, version) is None:
                return f'subject "{subject}" has no version {version}'
            if schema and not self._is_registered(kind, subject, schema):
                return (
                    f'the schema is not registered in subject "{subject}": register it, or say '
                    "register: true"
                )
        except Exception as error:
            return self._refusal(subject, error)
        return ""

    def reading_problem(self, kind: str, subject: str, schema: str, version: int = 0) -> str:
        """Say why data of the subject's latest schema could not be read by another one.

        That is given by its text or, as a `version`, by its number.
        """
        try:
            latest = self._latest(subject)
            if version:
                if (found := self._version(subject, version)) is None:
                    return f'subject "{subject}" has no version {version}'
                schema = found.schema.schema_str
            if latest is None or not schema:
                return ""
            if problem := _other_language(kind, subject, latest):
                return problem
            fault = self._fault(latest.schema, schema) if kind == "avro" else ""
        except Exception as error:
            return self._refusal(subject, error)
        if not fault:
            return ""
        return f'version {latest.version} of subject "{subject}" cannot be read: {fault}'

    def result_problems(
        self, subject: str, schema: str, columns: Mapping[str, Any], version: int
    ) -> Sequence[str]:
        """Say what of a query's columns could not be written by an Avro schema.

        That is given as for `writing_problem`. `columns` are `spark_types.columns_of_result`.
        """
        from kafka_pipeline.common.kafka.avro_codec import parsed
        from kafka_pipeline.common.kafka.avro_results import misfits

        try:
            found = self._version(subject, version) if version else self._latest(subject)
            if not schema and found is None:
                return ()
            given = _schema("avro", schema) if schema else found.schema
            wrong = misfits(parsed(given, self._client), columns)
        except Exception as error:
            return (self._refusal(subject, error),)
        name = (
            "the schema in its file"
            if schema
            else f'version {found.version} of subject "{subject}"'
        )
        return [f"its results do not fit {name}: {each}" for each in wrong]

    def _latest(self, subject: str) -> Any:
        """Return the latest version of a subject, `None` if the registry has no such subject."""
        return _unless_not_found(lambda: self._client.get_version(subject, "latest"))

    def _version(self, subject: str, version: int) -> Any:
        return _unless_not_found(lambda: self._client.get_version(subject, version))

    def _is_registered(self, kind: str, subject: str, schema: str) -> bool:
        found = _unless_not_found(
            lambda: self._client.lookup_schema(subject, _schema(kind, schema))
        )
        return found is not None

    def _compatibility_problem(self, kind: str, subject: str, schema: str, latest: Any) -> str:
        if latest is None or not schema:
            return ""
        if self._client.test_compatibility(subject, _schema(kind, schema)):
            return ""
        fault = self._fault(latest.schema, schema) if kind == "avro" else ""
        wrong = f'the schema is not compatible with version {latest.version} of subject "{subject}"'
        return f"{wrong}: {fault}" if fault else wrong

    def _fault(self, writer: Any, schema: str) -> str:
        from kafka_pipeline.common.kafka.avro_codec import mismatch, parsed

        return mismatch(parsed(writer, self._client), parsed(_schema("avro", schema), self._client))

    def _refusal(self, subject: str, error: Exception) -> str:
        failure = registry_error(self._registry, subject, error)
        if failure is None:
            raise error
        if isinstance(failure, UnavailableError):
            raise failure from None
        return str(failure)


def _unless_not_found(ask: Callable[[], Any]) -> Any:
    """Return the registry's answer, `None` if it has no such subject or schema."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code == 404:
            return None
        raise


def _schema(kind: str, text: str) -> Any:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, _LANGUAGES[kind])


def _other_language(kind: str, subject: str, latest: Any) -> str:
    language = latest.schema.schema_type or "AVRO"
    if language == _LANGUAGES[kind]:
        return ""
    return f'subject "{subject}" has a schema in {language}, not {_LANGUAGES[kind]}'
