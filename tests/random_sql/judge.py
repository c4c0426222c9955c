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
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.random_sql.inputs import Inputs, Record
from tests.random_sql.queries import FILE_SCHEMA, Query, Shape
from tests.unit.streams.sql.folding import plain_session
from tests.unit.streams.sql.grouped_job import Result

FOREVER = 2**31 - 1
_NEARLY_ZERO = Decimal("1e-10")
"""What should be 0 is less than that, if it is the difference of doubles."""
_SIDES = ("start", "end")
_HIDDEN = ("__time", "__start", "__end")
_AS_OF = re.compile(r"«asof (\w+)»")
_RECORD = "key STRING, value STRING, at BIGINT, partition INT, offset BIGINT, __seq INT"

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
    """Runs queries in sessions of the Spark of this process."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of lookup tables."""
        self._folder = folder

    def expected(self, query: Query, inputs: Inputs) -> list[Row]:
        """Return what the results must be. Raises `UnjudgedError`."""
        session = plain_session()
        self._define(session, query, inputs)
        try:
            found = session.sql(self._text(query))
            rows = _rows(found)
        except PySparkException as error:
            raise UnjudgedError(str(error).splitlines()[0]) from error
        kept = [row for row in rows if _is_kept(query, row)]
        return [_row(query, row) for row in kept]

    def _text(self, query: Query) -> str:
        prefix = "i." if "input i" in query.source else ""
        time = f"{prefix}timestamp"
        if query.shape is Shape.JOIN:
            time = "greatest(o.timestamp, p.timestamp)"
        last, again = f", unix_millis(max({time})) AS __time", ", __time"
        if query.window is not None:
            borders = [f"unix_millis({query.window.column}.{each}) AS __{each}" for each in _SIDES]
            last += ", " + ", ".join(borders)
            again += ", __start, __end"
        marks = {
            "«time»": f", unix_millis({time}) AS __time",
            "«last»": last,
            "«last again»": again,
            "«window end»": ", unix_millis(w.start) AS __start, unix_millis(w.end) AS __end",
            "«ties»": f", {prefix}timestamp, {prefix}partition, {prefix}offset",
        }
        text = query.marked()
        for mark, instead in marks.items():
            text = text.replace(mark, instead)
        return _AS_OF.sub(r" AND \1.__since <= i.__seq AND i.__seq < \1.__until", text)

    def _define(self, session: SparkSession, query: Query, inputs: Inputs) -> None:
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
            view = "input" if len(taken) == 1 else topic
            frame = _parsed(session.createDataFrame(rows, _RECORD), query.inputs[topic])
            frame = frame if query.topic_tables else frame.drop("__seq")
            frame.createOrReplaceTempView(view)
        for topic, changes in versions.items():
            types = "key STRING, value STRING, at BIGINT, __since INT, __until INT"
            table = session.createDataFrame([tuple(each) for each in changes], types)
            _parsed(table, query.topic_tables[topic]).createOrReplaceTempView(topic)
        for name in query.files:
            path = str(Path(self._folder, f"{name}.csv"))
            session.read.schema(FILE_SCHEMA).csv(path).createOrReplaceTempView(name)


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
    return (record.is_bad and query.uses_a_field) or (record.key is None and query.groups_by_key)


def _text_of(record: Record) -> str | None:
    return None if record.value is None or record.is_bad else record.value.decode()


def _parsed(frame: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    types = ", ".join(f"{name} {type_}" for name, type_ in schema.items())
    others = [name for name in frame.columns if name not in ("key", "value", "at")]
    frame = frame.select(
        F.from_json("value", types).alias("value"),
        "key",
        F.timestamp_millis("at").alias("timestamp"),
        *others,
    )
    return frame.select("value.*", *(name for name in frame.columns if name != "value"))


def _rows(found: DataFrame) -> list[dict[str, Any]]:
    names = [name for name in found.columns if name not in ("key", "timestamp", *_HIDDEN)]
    fields = [F.col(f"`{name}`") for name in names]
    value = F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}) if fields else F.lit("{}")
    hidden = [F.col(name) for name in _HIDDEN if name in found.columns]
    key = F.col("key") if "key" in found.columns else F.lit(None).cast("string")
    chosen = found.select(key.alias("key"), value.alias("value"), *hidden)
    return [row.asDict() for row in chosen.collect()]


def _is_kept(query: Query, row: Mapping[str, Any]) -> bool:
    """Whether the engine keeps a window; it keeps none that begins before 1970."""
    return query.window is None or "__start" not in row or row["__start"] >= 0


def _row(query: Query, row: Mapping[str, Any]) -> Row:
    value = json.loads(row["value"], parse_float=Decimal)
    return row["key"], value, row.get("__time")


def folded(query: Query, results: Iterable[Result]) -> list[Row]:
    """Return what the results of a stream say in the end: a table, or all of them."""
    rows = [
        (each.key, each.value, each.timestamp if _has_time(query) else None) for each in results
    ]
    if not query.is_table:
        return rows
    return [row for row in {row[0]: row for row in rows}.values() if row[1] is not None]


def _has_time(query: Query) -> bool:
    return query.shape not in (Shape.DISTINCT, Shape.BEST)


def difference(expected: Sequence[Row], found: Sequence[Row]) -> Difference | None:
    """Return what differs between two lists of rows in any order, or None."""
    missing = Counter(map(_comparable, expected)) - Counter(map(_comparable, found))
    unexpected = Counter(map(_comparable, found)) - Counter(map(_comparable, expected))
    if not missing and not unexpected:
        return None
    return Difference([*missing.elements()], [*unexpected.elements()])


def _comparable(value: Any) -> Any:
    """Return a value that equals those that differ only in the last digits of a double."""
    match value:
        case Decimal():
            return _digits(value)
        case dict():
            return tuple((name, _comparable(each)) for name, each in sorted(value.items()))
        case list() | tuple():
            return tuple(map(_comparable, value))
        case bool() | str() | None:
            return (type(value).__name__, value)
    return _digits(Decimal(value))


def _digits(value: Decimal) -> Any:
    """Return a number without the digits that a double does not have for certain.

    Numbers of up to 10 decimal places are as they are.
    """
    exponent = value.normalize().as_tuple().exponent
    if not isinstance(exponent, int) or exponent >= -10:
        return value.normalize()
    return Decimal(0) if abs(value) < _NEARLY_ZERO else Decimal(f"{value:.9e}").normalize()
