"""The `tables:` section of config.yaml: what the lookup tables of queries may be read from."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Section, Texts
from kafka_pipeline.common.config.table_paths import Location, PathError, location_of
from kafka_pipeline.common.config.yaml_positions import Problems

FILE_FORMATS = ("parquet", "csv", "json", "orc", "avro", "text")
JDBC = "jdbc"

# A class name has a dot.
_FORMAT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+", re.ASCII)
_URL = re.compile(r"jdbc:[a-z0-9+_-]+:\S+")
_PREFIX = re.compile(r"jdbc:[a-z0-9+_-]+(?::[a-z0-9+_-]+)*:@?//[^/?#;&@\s]+/")
_WRITE_URL = re.compile(r"(?:postgresql|https?)://\S+")
_WRITE_PREFIX = re.compile(r"(?:postgresql|https?)://[^/?#\s]+/")
_DATABASE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_EMBEDDED = re.compile(
    r"jdbc:(?:derby:(?!//)|h2:(?!tcp:|ssl:)|hsqldb:(?!hsqls?:|https?:)|sqlite:|duckdb:)"
)

_FORMATS = Texts(
    name="formats",
    doc="formats of files, by Spark's short names",
    pattern=f"^{_FORMAT.pattern}$",
    default=FILE_FORMATS,
)
_PATHS = Texts(
    name="paths",
    doc="folders and files that tables of files, and histories of sources, may be in: relative to "
    "the folder of config.yaml, from `~`, absolute, or URIs such as `s3a://bucket/folder`. By "
    "default, the folder of config.yaml",
    # A scheme, or no colon before the first slash; no wildcards.
    pattern=r"^(?=.*\S)(?:[A-Za-z][A-Za-z0-9+.-]*:/|[^:/\\{}\[\]*?]*(?:/|$))[^\\{}\[\]*?]*$",
    default=(".",),
)
_WRITE_PATHS = Texts(
    name="write_paths",
    doc="the same for tables that processors of `type: table` write; by default, they may write "
    "none",
    pattern=_PATHS.pattern,
)
_WRITE_URLS = Texts(
    name="write_urls",
    doc="databases and catalogs in which processors of `type: table` may write tables, and sources "
    "may have their history, as `postgresql://host:5432/database`, or `https://host/catalog` of a "
    "REST catalog; a URL that "
    'ends in "/" allows all databases of the host; by default, they may write none',
    pattern="^(postgresql|https?)://",
)
_URLS = Texts(
    name="urls",
    doc='databases, as `jdbc:postgresql://host:5432/database`; a URL that ends in "/" allows all '
    "databases of the host",
    pattern="^jdbc:",
)
_DRIVERS = Texts(
    name="drivers",
    doc="classes that a table may name; most need not be named",
    pattern=f"^{_CLASS.pattern}$",
)
_JDBC = Section(name=JDBC, doc="databases", keys=(_URLS, _DRIVERS))
TABLES = Section(
    name="tables",
    doc="what lookup tables of queries may be read from, and which tables processors may write, "
    "whatever pipeline.yaml says",
    keys=(_FORMATS, _PATHS, _WRITE_PATHS, _WRITE_URLS, _JDBC),
)
"""The section of config.yaml."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What lookup tables may be read from: formats by Spark's short names, files and databases.

    A URL that ends in "/" after the host allows every database there: a name of letters, digits,
    "_" and "-" may follow. Any other URL must match exactly, parameters included: these can make a
    driver load classes, run scripts or connect elsewhere. `jdbc_drivers` are the classes that a
    table may name as its driver. URLs may hold passwords, so `repr` omits them.

    File tables may be in `paths`, except in `private` files and folders, and under names that begin
    with ".". Tables may be written in `write_paths`, and in databases and catalogs by `write_urls`,
    which are compared as those of `jdbc_urls` are. Paths are relative to `folder`, that of
    config.yaml, which is absolute if the file was loaded. Links are resolved on both sides before
    paths are compared.
    """

    formats: tuple[str, ...] = FILE_FORMATS
    jdbc_urls: tuple[str, ...] = field(default=(), repr=False)
    jdbc_drivers: tuple[str, ...] = ()
    folder: Path = Path()
    paths: tuple[str, ...] = (".",)
    write_paths: tuple[str, ...] = ()
    write_urls: tuple[str, ...] = field(default=(), repr=False)
    # The name of config.yaml is not a setting: two files with the same settings are equal.
    private: tuple[Path, ...] = field(default=(), compare=False)

    def path_problem(self, location: Location) -> str | None:
        """Return why no table may be read from a location; `None` if one may.

        The reason is the end of a sentence. The caller must also check each file that a pattern or
        a folder on the host leads to.
        """
        return self._problem_below(location, _PATHS.name, self.paths)

    def write_problem(self, location: Location) -> str | None:
        """Return why no table may be written at a location; `None` if one may."""
        return self._problem_below(location, _WRITE_PATHS.name, self.write_paths)

    def _problem_below(self, location: Location, key: str, paths: Sequence[str]) -> str | None:
        ways = [location.below(location_of(path, self.folder)) for path in paths]
        found = [way for way in ways if way is not None]
        if not found:
            return (
                "is outside of what config.yaml allows: list it, or a folder that it is in, under "
                f"tables: {{{key}: […]}}"
            )
        if all(any(map(_is_hidden, way)) for way in found):
            return f'has a name that begins with ".": list it under tables: {{{key}: […]}}'
        if location.is_on_host and not location.pattern and self._is_private(location.path):
            return "belongs to the configuration, the secrets or the state of this process"
        return None

    def _is_private(self, path: Path) -> bool:
        private = {file.resolve() for file in self.private}
        return not private.isdisjoint((path, *path.parents)) or any(
            os.path.samefile(path, file) for file in private if path.exists() and file.exists()
        )

    def allows_url(self, url: str) -> bool:
        """Whether a table may be read from a database with this URL."""
        return _is_among(url, self.jdbc_urls)

    def allows_writes(self, url: str) -> bool:
        """Whether a table may be written in a database with this URL."""
        return _is_among(url, self.write_urls)


def read_table_settings(fields: Fields, folder: Path, problems: Problems) -> TableSettings:
    """Return the settings of a config.yaml in `folder`; each mistake goes to `problems`."""
    tables = fields.submap(TABLES)
    formats = FILE_FORMATS if tables.get("formats") is None else tables.texts(_FORMATS)
    for format_ in formats:
        wrong = _format_problem(format_)
        if wrong:
            problems.add(tables.at("formats"), f'formats: "{format_}" {wrong}')
    jdbc = tables.submap(_JDBC)
    urls, drivers = jdbc.texts(_URLS), jdbc.texts(_DRIVERS)
    for number, url in enumerate(urls, 1):
        wrong = _url_problem(url)
        if wrong:
            problems.add(jdbc.at("urls"), f"urls: number {number} {wrong}")
    for driver in drivers:
        if _CLASS.fullmatch(driver) is None:
            problems.add(
                jdbc.at("drivers"),
                f'drivers: "{driver}" is not the name of a class, such as org.postgresql.Driver',
            )
    write_urls = tables.texts(_WRITE_URLS)
    for number, url in enumerate(write_urls, 1):
        if wrong := _write_url_problem(url):
            problems.add(tables.at(_WRITE_URLS.name), f"write_urls: number {number} {wrong}")
    paths = (".",) if tables.get("paths") is None else tables.texts(_PATHS)
    write_paths = tables.texts(_WRITE_PATHS)
    for key, given in ((_PATHS, paths), (_WRITE_PATHS, write_paths)):
        for path in given:
            if wrong := _path_problem(path, folder):
                problems.add(tables.at(key.name), f'{key.name}: "{path}" {wrong}')
    return TableSettings(
        formats, urls, drivers, folder.absolute(), paths, write_paths, write_urls=write_urls
    )


def _is_among(url: str, urls: Sequence[str]) -> bool:
    return any(
        url == allowed
        or (
            allowed.endswith("/")
            and url.startswith(allowed)
            and _DATABASE.fullmatch(url, len(allowed)) is not None
        )
        for allowed in urls
    )


def _is_hidden(name: str) -> bool:
    """Whether a name is hidden by a dot; Kubernetes' volumes name versions with two dots."""
    return name.startswith(".") and not name.startswith("..")


def _path_problem(path: str, folder: Path) -> str | None:
    try:
        location = location_of(path, folder)
    except PathError as error:
        return str(error)
    return "has wildcards: list the folder" if location.pattern else None


def _format_problem(format_: str) -> str | None:
    if format_.lower() == JDBC:
        return "is allowed by its URLs: list them under jdbc: {urls: […]}"
    if _FORMAT.fullmatch(format_) is None:
        return "is not a short name of a source of Spark, such as parquet: classes are not allowed"
    return None


def _url_problem(url: str) -> str | None:
    """Return what is wrong with a URL, as the end of a sentence; `None` if nothing.

    The result does not quote the URL, which may hold a password.
    """
    if _URL.fullmatch(url) is None:
        return "is not the URL of a database, such as jdbc:postgresql://host:5432/database"
    if _EMBEDDED.match(url):
        return (
            "is a database inside of the TaskManager's own process, where a query could run code: "
            "give the URL of a server"
        )
    if url.endswith("/") and _PREFIX.fullmatch(url) is None:
        return (
            'ends in "/", which allows all databases of a host, and does not name the host: write '
            "jdbc:postgresql://host:5432/, or the whole URL"
        )
    return None


def _write_url_problem(url: str) -> str | None:
    """Return what is wrong with a URL, as `_url_problem` does."""
    if _WRITE_URL.fullmatch(url) is None:
        return (
            "is not the URL of a database, such as postgresql://host:5432/database, or of a REST "
            "catalog, such as https://host/catalog"
        )
    if url.endswith("/") and _WRITE_PREFIX.fullmatch(url) is None:
        return (
            'ends in "/", which allows all databases of a host, and does not name the host: write '
            "postgresql://host:5432/, or the whole URL"
        )
    return None
