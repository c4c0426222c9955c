"""What plain Spark gives for a query and all its records at once, and how it is compared.

What the documentation leaves open is not compared: the last digits of doubles, the order of
results, and the time of distinct and of best rows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.random_sql.drawn_windows import CALENDAR, calendar_of
from tests.random_sql.inputs import Inputs, Record
from tests.random_sql.queries import FILE_SCHEMA, Query, Shape
from tests.unit.streams.sql.folding import plain_session
from tests.unit.streams.sql.grouped_job import Result

FOREVER = 2**31 - 1
_NEARLY_ZERO = Decimal("1e-10")
"""What should be 0 is less than that, if it is the difference of doubles."""
_ERRORS = (PySparkException, Py4JJavaError)
"""What Spark raises; the second one for its own bugs, as with some BETWEEN in GROUP BY."""
_HIDDEN = ("__time", "__start", "__end")
_AS_OF = re.compile(r"«asof (\w+)»")
_RECORD = {
    "key": pa.string(),
    "value": pa.string(),
    "at": pa.int64(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "__seq": pa.int32(),
}
_VERSION = {
    "key": pa.string(),
    "value": pa.string(),
    "at": pa.int64(),
    "__since": pa.int32(),
    "__until": pa.int32(),
}
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_MOMENT = re.compile(r"(\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d*?)0+(?!\d)")
_FILE_COLUMNS = [each.split()[0] for each in FILE_SCHEMA.split(", ")]

Row = tuple[str | None, Any, int | None]
"""Key, value and time (ms) of a result; the time is null where it is not compared."""


class UnjudgedError(Exception):
    """Spark does not run the query over these records either."""


@dataclass(frozen=True)
class Difference:
    """What only one of both has."""

    missing: Sequence[Row]
    unexpected: Sequence[Row]

    def __str__(self) -> str:
        """Show some rows of each."""
        parts = [("only Spark gives", self.missing), ("only we give", self.unexpected)]
        return "\n".join(f"{name}: {row}" for name, rows in parts for row in rows[:8])


class Judge:
    """Runs queries in a session of the Spark of this process, those of several inputs at once."""

    def __init__(self) -> None:
        """Wait for the first query: it may start Spark."""
        self._session: SparkSession | None = None

    def expected(self, query: Query, runs: Sequence[Inputs]) -> list[list[Row] | UnjudgedError]:
        """Return what the results for each of some inputs must be."""
        session = self._session = self._session or _session()
        text = _text(query)
        try:
            frames = list[DataFrame]()
            for inputs in runs:
                _define(session, query, inputs)
                frames.append(_numbered(session.sql(text), len(frames)))
        except _ERRORS as error:
            return [_unjudged(error)] * len(runs)
        try:
            rows = reduce(DataFrame.union, frames).collect()
        except _ERRORS:
            return [self._one(query, frame) for frame in frames]
        return [_kept(query, [row for row in rows if row.run == run]) for run in range(len(runs))]

    def _one(self, query: Query, frame: DataFrame) -> list[Row] | UnjudgedError:
        try:
            return _kept(query, frame.collect())
        except _ERRORS as error:
            return _unjudged(error)


def _session() -> SparkSession:
    session = plain_session()
    # One partition needs no exchange, and no job for each.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    return session


def _unjudged(error: Exception) -> UnjudgedError:
    # The message of a text that Spark cannot read begins with an empty line.
    return UnjudgedError(str(error).strip().splitlines()[0])


def _text(query: Query) -> str:
    prefix = "i." if "input i" in query.source else ""
    time = f"{prefix}timestamp"
    if query.shape is Shape.JOIN:
        time = "o.timestamp" if query.shows_one_side else "greatest(o.timestamp, p.timestamp)"
    if query.joined and not query.changes:
        time = f"greatest({', '.join(f'{each}.timestamp' for each in query.joined)})"
    last, again = f", unix_millis(max({time})) AS __time", ", __time"
    window = query.window
    if window is not None:
        for side, column in (("start", window.start), ("end", window.end)):
            last += f", unix_millis({column}) AS __{side}"
        again += ", __start, __end"
    marks = {
        "«time»": "" if query.changes else f", unix_millis({time}) AS __time",
        "«last»": "" if query.changes or query.changelog else last,
        "«again»": again,
        "«window end»": ", unix_millis(w.start) AS __start, unix_millis(w.end) AS __end",
        "«ties»": "" if query.joined else f", {prefix}timestamp, {prefix}partition, {prefix}offset",
    }
    if query.shape is Shape.BEST and (query.changelog or query.changes):
        # Rows of a table that tie are in the order of their columns.
        marks["«ties»"] = "".join(f", ({each.expression.sql})" for each in query.items)
    text = query.marked()
    for mark, instead in (*marks.items(), *(() if window is None else window.judged)):
        text = text.replace(mark, instead)
    return _AS_OF.sub(r" AND \1.__since <= i.__seq AND i.__seq < \1.__until", text)


def _define(session: SparkSession, query: Query, inputs: Inputs) -> None:
    """Make views of what a query reads."""
    taken: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in query.inputs}
    versions: dict[str, list[list[Any]]] = {topic: [] for topic in query.topic_tables}
    for number, (record, offset) in enumerate(in_turns(inputs, [*query.topic_tables])):
        if record.topic in versions:
            _change(versions[record.topic], record, number)
        elif not _is_left_out(query, record):
            row = (record.key, _text_of(record), record.time_ms, record.partition, offset)
            taken[record.topic].append((*row, number))
    for topic, rows in taken.items():
        rows.sort(key=lambda row: row[4])
        if query.has_upserts(topic):
            rows = [row for row in {row[0]: row for row in rows}.values() if row[1] is not None]
        frame = _parsed(session, rows, _RECORD, query.inputs[topic])
        if calendar := calendar_of(query.window):
            frame = frame.withColumn(CALENDAR, F.expr(calendar))
        frame = frame if query.topic_tables else frame.drop("__seq")
        for view in {topic, "input" if len(taken) == 1 else topic}:
            frame.createOrReplaceTempView(f"`{view}`")
    for topic, changes in versions.items():
        _parsed(session, changes, _VERSION, query.topic_tables[topic]).createOrReplaceTempView(
            topic
        )
    for name, lines in query.files.items():
        fields = [[each or None for each in line.split(",")] for line in lines]
        table = _frame(session, fields, dict.fromkeys(_FILE_COLUMNS, pa.string()))
        columns = FILE_SCHEMA.split(", ")
        cast = [F.col(each.split()[0]).cast(each.split()[1]) for each in columns]
        table.select(*cast).createOrReplaceTempView(name)


def _frame(
    session: SparkSession, rows: Sequence[Sequence[Any]], types: Mapping[str, pa.DataType]
) -> DataFrame:
    columns = [[row[place] for row in rows] for place in range(len(types))]
    arrays = [pa.array(each, type_) for each, type_ in zip(columns, types.values(), strict=True)]
    return session.createDataFrame(pa.table(arrays, [*types]))


def in_turns(inputs: Inputs, tables: Sequence[str]) -> Iterator[tuple[Record, int]]:
    """Yield records with their offsets in the order in which tasks take them.

    That is the order of time within a batch of a partition, and tables first where times tie.
    """
    offset = 0
    for batch in inputs.batches:
        topics = [*{record.topic: None for record in batch}]
        for partition in sorted({record.partition for record in batch}):
            waiting = {}
            for topic in topics:
                found = [r for r in batch if (r.topic, r.partition) == (topic, partition)]
                waiting[topic] = list(zip(found, range(offset, offset + len(found)), strict=True))
                offset += len(found)
            while any(waiting.values()):
                heads = [topic for topic in topics if waiting[topic]]
                first = min(heads, key=lambda t: (waiting[t][0][0].time_ms, t not in tables))
                yield waiting[first].pop(0)


def _change(versions: list[list[Any]], record: Record, number: int) -> None:
    for version in versions:
        if version[0] == record.key and version[4] == FOREVER:
            version[4] = number
    if record.value is not None:
        versions.append([record.key, record.value.decode(), record.time_ms, number, FOREVER])


def _is_left_out(query: Query, record: Record) -> bool:
    """Whether a record is rejected, or dropped since a group is one of keys and it has none."""
    needs_key = query.groups_by_key or query.has_upserts(record.topic)
    return (record.is_bad and query.uses_a_field) or (record.key is None and needs_key)


def _text_of(record: Record) -> str | None:
    return None if record.value is None or record.is_bad else record.value.decode()


def _parsed(
    session: SparkSession,
    rows: Sequence[Sequence[Any]],
    types: Mapping[str, pa.DataType],
    schema: Mapping[str, str],
) -> DataFrame:
    frame = _frame(session, rows, types)
    fields = ", ".join(f"{name} {type_}" for name, type_ in schema.items())
    others = [name for name in frame.columns if name not in ("key", "value", "at")]
    frame = frame.select(
        F.from_json("value", fields).alias("value"),
        "key",
        F.timestamp_millis("at").alias("timestamp"),
        *others,
    )
    return frame.select("value.*", *(name for name in frame.columns if name != "value"))


def _numbered(found: DataFrame, run: int) -> DataFrame:
    """Return results as JSON, with the number of their run."""
    names = [name for name in found.columns if name not in ("key", "timestamp", *_HIDDEN)]
    fields = [F.col(f"`{name}`") for name in names]
    value = F.to_json(F.struct(*fields), _JSON) if fields else F.lit("{}")
    nothing = F.lit(None)
    hidden = [F.col(each) if each in found.columns else nothing for each in _HIDDEN]
    key = F.col("key") if "key" in found.columns else nothing
    return found.select(
        F.lit(run).alias("run"),
        key.cast("string").alias("key"),
        value.alias("value"),
        *(each.cast("bigint").alias(name) for each, name in zip(hidden, _HIDDEN, strict=True)),
    )


def _kept(query: Query, rows: Iterable[Any]) -> list[Row]:
    """Return the results that the engine keeps: none of windows that begin before 1970."""
    has_windows = query.window is not None
    return [
        (
            row.key,
            json.loads(row.value, parse_float=Decimal),
            row["__time"] if query.has_time else None,
        )
        for row in rows
        if not (has_windows and row["__start"] is not None and row["__start"] < 0)
    ]


def folded(query: Query, results: Iterable[Result]) -> list[Row]:
    """Return what the results of a stream say in the end: a table, or all of them."""
    rows = [(each.key, each.value, each.timestamp if query.has_time else None) for each in results]
    if not query.is_table:
        return rows
    return [row for row in {row[0]: row for row in rows}.values() if row[1] is not None]


def difference(expected: Sequence[Row], found: Sequence[Row]) -> Difference | None:
    """Return what differs between two lists of rows in any order, or None."""
    missing = Counter(map(_comparable, expected)) - Counter(map(_comparable, found))
    unexpected = Counter(map(_comparable, found)) - Counter(map(_comparable, expected))
    if not missing and not unexpected:
        return None
    return Difference([*missing.elements()], [*unexpected.elements()])


def _comparable(value: Any) -> Any:
    """Return a value that equals those that differ only in digits that do not matter.

    These are the last ones of a double, and zeros that end the fraction of a second.
    """
    match value:
        case Decimal():
            return _digits(value)
        case dict():
            return tuple((name, _comparable(each)) for name, each in sorted(value.items()))
        case list() | tuple():
            return tuple(map(_comparable, value))
        case str():
            return ("str", _MOMENT.sub(r"\1", value))
        case bool() | None:
            return (type(value).__name__, value)
    return Decimal(value).normalize()


def _digits(value: Decimal) -> Any:
    """Return a number without the digits that a double does not have for certain.

    Numbers of up to 10 decimal places are as they are, unless they have 15 to 17 digits, as most
    doubles do, or 18 without decimal places, as some large ones do.
    """
    _, digits, exponent = value.normalize().as_tuple()
    assert isinstance(exponent, int), "JSON has neither infinities nor NaN"
    if exponent < -10:
        return Decimal(0) if abs(value) < _NEARLY_ZERO else Decimal(f"{value:.9e}").normalize()
    most = 18 if exponent >= 0 else 17
    return Decimal(f"{value:.12e}").normalize() if 15 <= len(digits) <= most else value.normalize()
