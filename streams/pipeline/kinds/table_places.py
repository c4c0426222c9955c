"""Where a table may be that a processor writes or reads as history, by config.yaml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import structs

from kafka_pipeline.common.config.expansion import has_references
from kafka_pipeline.common.config.keys import Choice
from kafka_pipeline.common.config.table_paths import Location, PathError, location_of
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.history import HistorySpec
from kafka_pipeline.common.pipelines.specs import TableSinkSpec

SQLITE = "sqlite:///"
SQL = "sql"
"""The type of a catalog in a database."""
NAME = "default"
"""The name of a catalog, as that of PyIceberg."""
CATALOG_TYPE: Choice[str] = Choice(
    name="type",
    doc="`sql`, a database, or `rest`, a server with the REST API of Iceberg",
    about="sql or rest",
    choices=(SQL, "rest"),
    required=True,
)

_DRIVER = re.compile(r"^postgresql\+\w+://")
# No backslash: urllib3 takes what precedes one for the host.
_LOGIN = re.compile(r"://[^/?#@\\]*@")

S = TypeVar("S", TableSinkSpec, HistorySpec)
_PathProblem = Callable[[Location], str | None]


def located(spec: S, settings: TableSettings) -> S:
    """Return the spec with its paths as they are on this host.

    References in properties and URLs have values where tasks run, so what has one is checked there
    alone. Raises `ConfigError` for a place that `settings` does not allow, and for a `path` with a
    reference, which would stay as it is.
    """
    is_written = isinstance(spec, TableSinkSpec)
    problem = settings.write_problem if is_written else settings.path_problem
    if isinstance(spec, TableSinkSpec) and spec.format == "postgres":
        _require_url("url", spec.url, settings)
        return spec
    if spec.format == "iceberg":
        return structs.replace(spec, catalog=_catalog(spec.catalog, settings, problem))
    if has_references(spec.path):
        raise ConfigError(f'path "{spec.path}" has a reference, which gets no value there')
    path = _path("path", spec.path, settings, problem)
    if spec.format == "parquet" and not path.startswith("/"):
        raise ConfigError(
            f'path "{spec.path}" is not a folder of the host, and in other places files do not '
            "appear at once and alone: write a Delta or Iceberg table there"
        )
    return structs.replace(spec, path=path)


def _catalog(
    given: Mapping[str, str], settings: TableSettings, problem: _PathProblem
) -> Mapping[str, str]:
    """Return the properties of a catalog, whose data SQL does not keep but a warehouse.

    The server of a REST catalog decides itself where data is.
    """
    uri = given.get("uri", "")
    if uri.startswith(SQLITE):
        uri = f"{SQLITE}{_path('catalog.uri', uri.removeprefix(SQLITE), settings, problem)}"
    else:
        # Who connects, and with which driver, does not change where.
        plain = _LOGIN.sub("://", _DRIVER.sub("postgresql://", uri), count=1)
        _require_url("catalog.uri", uri if has_references(uri) else plain, settings)
    if given.get("type") != SQL:
        return {**given, "uri": uri}
    warehouse = _path("catalog.warehouse", given.get("warehouse", ""), settings, problem)
    on_host = f"file://{warehouse}" if warehouse.startswith("/") else warehouse
    return {**given, "uri": uri, "warehouse": on_host}


def _path(key: str, path: str, settings: TableSettings, problem_of: _PathProblem) -> str:
    if has_references(path):
        return path
    try:
        location = location_of(path, settings.folder)
    except PathError as error:
        raise ConfigError(f"{key} {error}") from None
    if location.pattern:
        raise ConfigError(f"{key} has wildcards: name one folder")
    if problem := problem_of(location):
        raise ConfigError(f'{key} "{path}" {problem}')
    return str(location.path) if location.is_on_host else location.uri


def _require_url(key: str, url: str, settings: TableSettings) -> None:
    if not has_references(url) and not settings.allows_writes(url):
        raise ConfigError(
            f"{key} is not allowed by tables: {{write_urls: […]}} of config.yaml; parameters must "
            "be the same too"
        )
