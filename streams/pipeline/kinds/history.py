"""The key `history` of a source: a table with the records that its topic does not have any more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

from kafka_pipeline.common.config.expansion import has_references
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Choice, ConfigKey, Schema, Section, Text
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.history import HistoryFormat, HistorySpec, RecordPart
from kafka_pipeline.streams.pipeline.kinds.entry import PipelineFile
from kafka_pipeline.streams.pipeline.kinds.table_places import CATALOG_TYPE, NAME, SQL, located

_ICEBERG: HistoryFormat = "iceberg"
_WRITER = r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+"
_FORMAT: Choice[HistoryFormat] = Choice(
    name="format",
    doc="what the table is",
    about="such as delta",
    choices=get_args(HistoryFormat),
    required=True,
)
_PATH = Text(
    name="path",
    doc="for `delta` and `parquet`: the folder of the table, or for `delta` its URI; config.yaml "
    "must allow it as one of `tables.paths`",
    about="the folder of the table, or its URI",
    default="",
)
_URI = Text(
    name="uri",
    doc="`sqlite:///FILE`, `postgresql://host:5432/database` or `https://host/catalog`, without "
    "references",
    about="where the catalog is, such as https://host/catalog",
    required=True,
)
_WAREHOUSE = Text(name="warehouse", doc="as the writer has it", default="")
_NAME = Text(name="name", doc="the name of the catalog", default=NAME)
_CATALOG = Section(
    name="catalog",
    doc="for `iceberg`: the catalog. config.yaml must allow folders by `tables.paths`, and servers "
    "by `tables.write_urls`; PyIceberg takes credentials from the environment",
    keys=(CATALOG_TYPE, _URI, _WAREHOUSE, _NAME),
)
_TABLE = Text(
    name="table",
    doc="for `iceberg`: `namespace.name`",
    about="the name of the table, with its namespace in front",
    default="",
)
_WRITTEN_BY = Text(
    name="written_by",
    doc="the job and the processor of `type: table` that write the table from this topic, as "
    "`shop/Orders`",
    about="the job and the processor that write it, as shop/Orders",
    required=True,
    pattern=f"^{_WRITER}$",
)
_PARTS: Mapping[RecordPart, Text] = {
    part: Text(name=part, doc=f"the column of the {part}", about="a column", required=True)
    for part in get_args(RecordPart)
}
_COLUMNS = Section(
    name="record_columns",
    doc="the columns of parts of the records, as the processor that writes the table has them",
    about="the columns key, timestamp, partition and offset",
    required=True,
    keys=tuple(_PARTS.values()),
)
_PLACES: Mapping[HistoryFormat, tuple[ConfigKey, ...]] = {
    "delta": (_PATH,),
    "parquet": (_PATH,),
    _ICEBERG: (_CATALOG, _TABLE),
}


def _rule(format_: HistoryFormat) -> Schema:
    """Return the condition that a format has its own kind of place, and no other."""
    own = [key.name for key in _PLACES[format_]]
    others = {key.name for keys in _PLACES.values() for key in keys} - set(own)
    return {
        "if": {"properties": {_FORMAT.name: {"const": format_}}, "required": [_FORMAT.name]},
        "then": {"required": own, "properties": dict.fromkeys(sorted(others), False)},
    }


HISTORY = Section(
    name="history",
    doc="a table with the records that the topic no longer has: the source is read from the table "
    "first, and then from the topic",
    keys=(_FORMAT, _PATH, _CATALOG, _TABLE, _WRITTEN_BY, _COLUMNS),
)
_WITH_SQL: Schema = {
    "properties": {CATALOG_TYPE.name: {"const": SQL}},
    "required": [CATALOG_TYPE.name],
}
_CATALOG_RULE: Schema = {
    "properties": {_CATALOG.name: {"if": _WITH_SQL, "then": {"required": [_WAREHOUSE.name]}}}
}
HISTORY_RULE: Schema = {
    "properties": {HISTORY.name: {"allOf": [*map(_rule, _PLACES), _CATALOG_RULE]}}
}
"""The conditions of a source with such a key."""


def read_history(fields: Fields, problems: Problems) -> HistorySpec | None:
    """Return the history of a source, `None` without one; mistakes go to `problems`."""
    if fields.get(HISTORY.name) is None:
        return None
    given = fields.submap(HISTORY)
    format_, columns = given.choice(_FORMAT), given.submap(_COLUMNS)
    own = _PLACES[format_]
    for keys in _PLACES.values():
        for key in keys:
            is_given = given.get(key.name) is not None
            if is_given and key not in own:
                problems.add(given.at(key.name), f"format: {format_} takes no {key.name}")
            elif key in own and not is_given:
                given.require(key)
    catalog: dict[str, str] = {}
    if given.get(_CATALOG.name) is not None and _CATALOG in own:
        its = given.submap(_CATALOG)
        catalog = {CATALOG_TYPE.name: its.choice(CATALOG_TYPE)}
        catalog |= {key.name: text for key in (_URI, _WAREHOUSE, _NAME) if (text := its.text(key))}
        if catalog[CATALOG_TYPE.name] == SQL and _WAREHOUSE.name not in catalog:
            problems.add(given.at(_CATALOG.name), f"catalog: type: {SQL} needs a warehouse")
    spec = HistorySpec(
        format=format_,
        path=given.text(_PATH),
        catalog=catalog,
        table=given.text(_TABLE),
        written_by=given.text(_WRITTEN_BY),
        record_columns={part: columns.text(key) for part, key in _PARTS.items()},
    )
    if has_references([spec.path, dict(catalog), spec.table]):
        problems.add(fields.at(HISTORY.name), "history: references have no values here")
    if spec.written_by and not re.fullmatch(_WRITER, spec.written_by):
        problems.add(given.at(_WRITTEN_BY.name), "written_by must be a job/processor")
    return spec


def check_histories(file: PipelineFile, settings: TableSettings, problems: Problems) -> None:
    """Report tables that config.yaml does not allow."""
    for name, spec in file.source_specs.items():
        if spec.history is not None and not problems.found_at(file.places[name]):
            try:
                located(spec.history, settings)
            except ConfigError as error:
                problems.add(file.places[name], f'source "{name}": history: {error}')
