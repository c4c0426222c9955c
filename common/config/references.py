"""Replaces references by their values in what came over a control topic."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from msgspec import structs

from kafka_pipeline.common.config.expansion import (
    ExpansionError,
    Reference,
    expand_json,
    has_references,
    references,
    texts,
)
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import (
    CodeSpec,
    DataFrameSpec,
    ProcessorSpec,
    SparkSpec,
    TableSinkSpec,
)
from kafka_pipeline.common.security.secret_file import SecretFileError, read_secret_file

S = TypeVar("S", bound=ProcessorSpec)


class References(Protocol):
    """Supplies the values of references on one host."""

    def expanded(self, value: Any, what: str) -> Any:
        """Return a JSON value with the references in its strings replaced by their values.

        `what` names the value in errors. Raises ConfigError for a variable that is not set, a file
        that cannot be read, and either if config.yaml does not allow it. The message contains no
        value.
        """


@dataclass(frozen=True, slots=True)
class HostReferences:
    """`References` with the `Values` on this host that its config.yaml allows: by default, none.

    `place` is the name of this process in errors, such as "TaskManager 0 at host7", or "".
    """

    settings: SecretSettings = field(default_factory=SecretSettings)
    place: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def expanded(self, value: Any, what: str) -> Any:
        try:
            return expand_json(value, self, what)
        except ExpansionError as error:
            raise ConfigError(f"{self.place}: {error}" if self.place else str(error)) from None

    def variable(self, name: str) -> str | None:
        problem = self.settings.problem(Reference(name))
        if problem:
            raise ExpansionError(problem)
        return self.environment.get(name)

    def file(self, path: str) -> str:
        found = self.settings.allowed_file(path)
        if found is None:
            raise ExpansionError(self.settings.problem(Reference(file=path)))
        try:
            return read_secret_file(found, follows_link=False)
        except SecretFileError as error:
            raise ExpansionError(f"${{file:{path}}}: {error}") from None


def with_values(spec: S, of: References | None, name: str) -> S:
    """Return a spec with values in place of the references of its code's config or its table.

    A spec without references is returned as it is, and needs no `of`. References of Spark's specs
    are replaced with their queries. `name` names its processor in errors. Raises ConfigError.
    """
    parts: dict[str, Any] = {}
    if isinstance(spec, CodeSpec):
        parts["config"] = spec.config
    elif isinstance(spec, TableSinkSpec):
        parts.update(spec.login)
    if not has_references(parts):
        return spec
    assert of is not None, "only hosts that run tasks have references"
    return structs.replace(spec, **of.expanded(parts, name))


def reference_problems(spec: ProcessorSpec, settings: SecretSettings) -> Iterator[str]:
    """Yield a sentence for each reference of a spec that this config.yaml does not allow."""
    for what, text in texts(_with_references(spec)):
        try:
            found = references(text)
        except ExpansionError:
            continue  # reported where it was read
        for problem in filter(None, map(settings.problem, found)):
            yield f"{what.removeprefix('.')}: {problem}"


def _with_references(spec: ProcessorSpec) -> dict[str, Any]:
    """Return the parts of a spec in which references are expanded."""
    parts: dict[str, Any] = {}
    if isinstance(spec, CodeSpec | DataFrameSpec):
        parts["config"] = spec.config
    if isinstance(spec, SparkSpec):
        parts["tables"] = {name: {"options": table.options} for name, table in spec.tables.items()}
    if isinstance(spec, TableSinkSpec):
        parts.update(spec.login)
    return parts
