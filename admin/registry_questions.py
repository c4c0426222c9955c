"""Asks the schema registry about the serdes of a pipeline.yaml, for commands that check it."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.registry_check import RegistryCheck
from kafka_pipeline.streams.pipeline.schema_uses import SchemaUse


class RegistryQuestions:
    """Finds problems of schemas, until the registry does not answer: then it says so, once.

    A registry in memory, which has no schemas yet, is not asked.
    """

    def __init__(self) -> None:
        self._check: RegistryCheck | None = None
        self._has_given_up = False

    def problems(self, settings: RegistrySettings | None, use: SchemaUse) -> Sequence[str]:
        """Return what the registry, always the same one, has against a use of schemas."""
        if settings is None or settings.is_mock or self._has_given_up:
            return ()
        serde = use.serde
        try:
            self._check = self._check or RegistryCheck(settings)
            if use.reads:
                wrong = self._check.reading_problem(
                    serde.kind, use.subject, serde.schema, serde.version
                )
            else:
                wrong = self._check.writing_problem(
                    serde.kind, use.subject, serde.schema, serde.register, serde.version
                )
            if wrong or use.columns is None:
                return (wrong,) if wrong else ()
            return self._check.result_problems(
                use.subject, serde.schema, use.columns, serde.version
            )
        except (ConfigError, UnavailableError) as error:
            self._has_given_up = True
            typer.echo(f"note: schemas were not compared with the registry: {error}", err=True)
            return ()
