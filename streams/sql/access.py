"""Decides whether a lookup table may be read, and where it is, by the config.yaml of this process.

The definitions of the tables have no say in this: they arrive through a control topic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.expansion import ExpansionError, has_references, references
from kafka_pipeline.common.config.references import HostReferences, References
from kafka_pipeline.common.config.table_paths import PathError, location_of
from kafka_pipeline.common.config.table_settings import JDBC, TableSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.security.secret_names import is_secret
from kafka_pipeline.common.suggest import did_you_mean, one_of
from kafka_pipeline.streams.sql.file_options import FILE_OPTIONS, unknown_option
from kafka_pipeline.streams.sql.spec import QueryError

# Spark passes options that it does not know to the database's driver, as if they were in the URL.
_JDBC_OPTIONS = frozenset(
    {
        "url",
        "dbtable",
        "query",
        "user",
        "password",
        "driver",
        "partitioncolumn",
        "lowerbound",
        "upperbound",
        "numpartitions",
        "fetchsize",
        "querytimeout",
        "customschema",
        "prefertimestampntz",
    }
)

# What Spark does not hand back in rows, names of columns or plans.
_USERS = ("user", "username")
_WHOLE = re.compile(r"\$\{[^{}]+\}")


@dataclass(frozen=True, slots=True)
class Readable:
    """What queries may read in a process: tables, and the values of references."""

    tables: TableSettings = field(default_factory=TableSettings)
    references: References = field(default_factory=HostReferences)

    @classmethod
    def of(cls, config: Config, place: str = "") -> Readable:
        """Return what a config.yaml allows; `place` is the name of this process in errors."""
        return cls(config.tables, HostReferences(config.secrets, place))

    def opened(self, tables: Mapping[str, Any], processor: str = "") -> dict[str, Any]:
        """Return lookup tables with values in place of references, and with absolute paths.

        Errors about references name the `processor`, if it is given. Raises `QueryError` unless all
        tables may be read. What they refer to may change, so they are to be checked at each
        reading.
        """
        _require_none(table_problems(self.tables, tables, is_written=True))
        given = {
            name: {
                **table,
                "options": self._expanded(
                    table.get("options", {}), processor, f"tables.{name}.options"
                ),
            }
            for name, table in tables.items()
        }
        _require_none(table_problems(self.tables, given))
        return located(self.tables, given)

    def arguments(self, config: Mapping[str, Any], processor: str = "") -> Mapping[str, Any]:
        """Return arguments of a function with values in place of references.

        Raises `QueryError` if one has no value, or may not be read.
        """
        return self._expanded(config, processor, "config")

    def _expanded(self, value: Mapping[str, Any], processor: str, what: str) -> Mapping[str, Any]:
        of = f"{processor}." if processor else ""
        try:
            expanded: Mapping[str, Any] = self.references.expanded(value, of + what)
        except ConfigError as error:
            raise QueryError(str(error)) from None
        return expanded


def _require_none(problems: list[str]) -> None:
    if problems:
        raise QueryError("; ".join(problems))


def located(settings: TableSettings, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return lookup tables with URIs in place of paths of files; none of them has a problem.

    Relative paths are relative to the folder of this process's config.yaml, and `~` is the user's
    home. Paths without a scheme are files of this host, whatever the file system of Spark is.
    """
    return {
        name: {**table, "path": location_of(table["path"], settings.folder).uri}
        if is_of_files(table["format"])
        else table
        for name, table in tables.items()
    }


def is_of_files(format_: str) -> bool:
    """Whether the path is that of files. Otherwise, it may be the name of a table."""
    return format_.lower() in FILE_OPTIONS


def table_problems(
    settings: TableSettings, tables: Mapping[str, Any], *, is_written: bool = False
) -> list[str]:
    """Return a sentence for each of these lookup tables that must not be read.

    `tables` may contain anything that JSON can express. With `is_written`, they are as in
    pipeline.yaml, with references, and those are checked; a URL that is one is not.
    """
    if not isinstance(tables, Mapping):
        return ["tables is not a map"]
    problems = []
    for name, table in tables.items():
        wrong = _problem(settings, table, is_written)
        if wrong:
            problems.append(f'table "{name}": {wrong}')
    return problems


def _problem(settings: TableSettings, table: Any, is_written: bool) -> str | None:
    if not isinstance(table, Mapping):
        return "it is not a map"
    format_, options = table.get("format"), table.get("options", {})
    if not isinstance(format_, str):
        return "its format is not a string"
    if not isinstance(options, Mapping) or not all(isinstance(v, str) for v in options.values()):
        return "its options are not a map of texts"
    if is_written:
        for option, value in options.items():
            if _refers(value) and not _may_refer(format_, option, value):
                return (
                    f'the option "{option}" takes no reference, as a query could show its value: '
                    "only user, secrets such as password, and the url of a database as a whole do"
                )
    if format_ == JDBC:
        return _jdbc_problem(settings, options, table.get("path"), is_written)
    if format_ not in settings.formats:
        near = did_you_mean(format_, settings.formats)
        allowed = one_of(settings.formats) if settings.formats else "none"
        return (
            f'config.yaml does not allow the format "{format_}"{near or f", only {allowed}"}: '
            "see tables: {formats: […]}"
        )
    if is_of_files(format_):
        return _file_problem(settings, format_, options, table.get("path"))
    dotted = next((option for option in options if "." in option), None)
    return None if dotted is None else _option_problem(dotted, format_)


def _file_problem(
    settings: TableSettings, format_: str, options: Mapping[str, str], path: Any
) -> str | None:
    option = unknown_option(options, FILE_OPTIONS[format_.lower()])
    if option is not None:
        return _option_problem(option, format_)
    if not isinstance(path, str) or not path:
        return "it needs a path, as a text"
    try:
        wrong = settings.path_problem(location_of(path, settings.folder))
    except PathError as error:
        wrong = str(error)
    return f'its path "{path}" {wrong}' if wrong else None


def _option_problem(option: str, format_: str) -> str:
    if option.lower() == "path":
        return "its path is an option: write it as path: …, next to format"
    if "." in option:
        # Spark turns them into Hadoop settings, some of which are names of classes.
        return (
            f'the option "{option}" is a setting of Hadoop or Spark: set it in config.yaml, '
            "as spark.hadoop.… under spark: {conf: …}"
        )
    near = did_you_mean(option, FILE_OPTIONS[format_.lower()])
    return f'the option "{option}" is none with which tables of {format_} are read{near or ""}'


def quotes_no_value(table: Mapping[str, Any]) -> bool:
    """Whether errors of reading a table can be shown: they hold no value of a reference.

    No database repeats the password that it is given. It does repeat users, in full or cut off.
    """
    return all(
        table["format"] == JDBC and option.lower() == "password"
        for option, value in table.get("options", {}).items()
        if _refers(value)
    )


def _refers(text: str) -> bool:
    """Whether a text has references, malformed ones included, rather than escapes alone."""
    try:
        return bool(references(text))
    except ExpansionError:
        return True


def _may_refer(format_: str, option: str, value: str) -> bool:
    if option.lower() == "url":
        return format_ == JDBC and _WHOLE.fullmatch(value) is not None
    return option.lower() in _USERS or is_secret(option)


def _jdbc_problem(
    settings: TableSettings, options: Mapping[str, str], path: Any, is_written: bool
) -> str | None:
    if not settings.jdbc_urls:
        return (
            "config.yaml does not allow jdbc: list the table's url under "
            "tables: {jdbc: {urls: […]}}"
        )
    # Spark ignores case here, and takes the last of two.
    given = {option.lower(): value for option, value in options.items()}
    if len(given) < len(options):
        return "an option is given twice"
    if path:
        return "a database has no path: give options: {url: …, dbtable: …}"
    for option in options:
        if option.lower() not in _JDBC_OPTIONS:
            return (
                f'the option "{option}" is not allowed, as some of those that drivers and '
                "connections take run code: put what the driver needs into the url, and that "
                "into config.yaml"
            )
    url = given.get("url", "")
    if not (is_written and has_references(url)) and not settings.allows_url(url):
        return (
            "its url is not allowed by tables: {jdbc: {urls: […]}} of config.yaml; parameters "
            "must be the same too"
        )
    driver = given.get("driver")
    if driver is not None and driver not in settings.jdbc_drivers:
        return (
            f'the driver "{driver}" is not among tables: {{jdbc: {{drivers: […]}}}} of '
            "config.yaml; most need not be named, as the url says enough"
        )
    return None
