"""Draws pipelines of Spark SQL for the runs of event time.

All records have a number `k`, which is also their key, and a list of `ids`: those of the inputs
that they consist of. There are few texts of queries, as Spark takes a second to plan one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import SessionSpec, WindowSpec
from kafka_pipeline.streams.pipeline.partitions import with_counts
from tests.memory.event_time_plans import Drawn, Records, draw_disorder, drawn_around
from tests.unit.streams.pipeline.loading import load
from tests.user_code.timed_windows import OUT, ROWS, Join, Level, Plan

MODULE = "tests.user_code.timed_windows"
BEST = 2
"""How many rows of a group are the best ones."""
DROPPED = 5
"""The filter drops records whose id is a multiple of this."""
_UNIT_MS = 1000
_MANY_KEYS = 1_000_000
_SCHEMA = "k INT, ids ARRAY<STRING>"
_IDS = "array_sort(flatten(collect_list(ids))) AS ids"
_BOTH = "array(concat_ws('+', coalesce(l.ids[0], '-'), coalesce(r.ids[0], '-'))) AS ids"
_JOINS = {"join": "JOIN", "left_join": "LEFT JOIN", "outer_join": "FULL JOIN"}
TTL_JOINS = {"ttl": "JOIN", "left_ttl": "LEFT JOIN"}
"""Joins by a column, without bounds of time. The second one takes results back."""
_PASSING = {
    "query": "SELECT key, k, ids FROM input",
    "filter": f"SELECT key, k, ids FROM input WHERE int(ids[0]) % {DROPPED} <> 0",
    "forward": "",
    "class": f"{MODULE}:Passing",
    "batches": f"{MODULE}:PassingBatches",
}
"""Queries of single records by name, and other processors by their types."""
_WINDOWED = ("tumbling", "tumbling", "hopping", "sessions", "distinct", "best", "frames")


class Passing(NamedTuple):
    """The meaning of a query of single records; with the name "fewer", it leaves so many keys."""

    name: str
    keys: int = 0


class Grouping(NamedTuple):
    """The meaning of a query with groups, windows or frames."""

    kind: str
    keys: int
    keyed: bool
    window: WindowSpec | SessionSpec | None
    size_ms: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    """A query with windows, or with frames of rows before each record.

    It groups records by `level.keys` values of `k`, behind a topic; or by their key if it is
    `keyed`. The kind of the level may also be "distinct", "best" or "frames".
    """

    level: Level
    keyed: bool

    @property
    def text(self) -> str:
        """The query."""
        level = self.level
        k = "int(key)" if self.keyed else f"pmod(k, {level.keys})"
        by = "key" if self.keyed else k
        size, advance = (f"'{ms} milliseconds'" for ms in (level.size_ms, level.advance_ms))
        window = f"window(timestamp, {size}, {advance})"
        given = f"SELECT string({k}) AS key, {k} AS k"
        match level.kind:
            case "distinct":
                rows = f"SELECT DISTINCT {by} AS k, {window} AS w FROM input"
                given = "SELECT string(k) AS key, int(k) AS k, array(string(k)) AS ids"
                return f"{given}, w.start AS timestamp FROM ({rows})"
            case "best":
                place = f"row_number() OVER (PARTITION BY {by}, {window} ORDER BY ids) AS place"
                rows = f"SELECT {k} AS k, ids, {place} FROM input"
                return f"SELECT string(k) AS key, k, ids FROM ({rows}) WHERE place <= {BEST}"
            case "frames":
                frame = f"INTERVAL {level.size_ms // 1000} SECONDS PRECEDING AND CURRENT ROW"
                over = f"PARTITION BY {by} ORDER BY timestamp RANGE BETWEEN {frame}"
                ids = f"array_sort(flatten(collect_list(ids) OVER ({over}))) AS ids"
                return f"{given}, {ids} FROM input"
            case "sessions":
                window = f"session_window(timestamp, {size})"
        return f"{given}, {_IDS} FROM input GROUP BY {by}, {window}"

    @property
    def meaning(self) -> Grouping:
        """The same without SQL."""
        level = self.level
        window: WindowSpec | SessionSpec = WindowSpec(
            size_ms=level.size_ms, slide_ms=level.advance_ms
        )
        if level.kind == "sessions":
            window = SessionSpec(gap_ms=level.size_ms)
        return Grouping(level.kind, level.keys, self.keyed, window, level.size_ms)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of its processor that say when results come."""
        grace = {"grace": f"{self.level.grace_ms} ms"}
        return grace if self.level.kind == "frames" else {**grace, "emit": "on_close"}


@dataclass(frozen=True, slots=True)
class SqlPlan(Plan):
    """A pipeline of queries. It has the join of a plan of the DSL, and what the drawing asks for.

    Each source goes through what `before` names. Then come the join and the `queries`, the second
    one after what `between` names; or they are stages of one if they are `nested`. In the end,
    results may change: the `updates` of a window of so many ms, if any, or `totals` of keys. If it
    is `direct`, the join or the first query reads the sources themselves.
    """

    before: tuple[str, ...] = ()
    queries: tuple[Query, ...] = ()
    between: str = ""
    nested: bool = False
    updates: int = 0
    totals: bool = False
    direct: bool = False

    @property
    def changes(self) -> bool:
        """Whether results replace former ones of their keys."""
        takes_back = self.join is not None and self.join.kind == "left_ttl"
        return bool(self.updates) or self.totals or takes_back

    @property
    def waits(self) -> bool:
        """Whether a task takes the records of two topics in the order of time: they are there."""
        return bool(self.table) or (self.direct and self.join is not None)

    @property
    def holds_one_of_two(self) -> bool:
        """Whether a task meets records of two topics, which must be there when it starts.

        In which order it would read those that come while it runs is up to chance (KIP-695).
        """
        return self.waits

    @property
    def rows_may_come_first(self) -> bool:
        """See `Plan`: records would find rows that are younger."""
        return False

    @property
    def meets_by_key(self) -> bool:
        """Whether the sources have as many partitions."""
        return self.direct and self.join is not None and self.join.kind in _JOINS

    @property
    def rows_away(self) -> tuple[int, ...]:
        """How much younger the rows of a table are: they are found."""
        return (0,)

    def processors(self) -> Iterator[dict[str, Any]]:
        """Yield the processors as pipeline.yaml has them, but for their targets."""
        ends = []
        for number, source in enumerate(self.topics):
            if self.table:
                history = {"history": "1 h"} if self.table == "history" else {}
                rows = {ROWS: {"topic": ROWS, "schema": _SCHEMA, **history}}
                yield _sql("Looked", [source], _LOOKUP, tables=rows)
                source = "Looked"
            for place, name in enumerate(self.before):
                yield _passing(f"Before{number}{place}", source, name)
                source = f"Before{number}{place}"
            if self.join is not None and not self.direct:
                name = ("Left", "Right")[number]
                yield _sql(name, [source], _by_fewer_keys(self.join.keys))
                source = name
            ends.append(source)
        (end,) = ends[:1]
        if self.join is not None:
            yield _sql("Joined", ends, _join_text(self.join, *ends), **_join_keys(self.join))
            end = "Joined"
        for place, (text, keys) in enumerate(self._texts()):
            if self.between and place == 1:
                yield _passing("Between", end, self.between)
                end = "Between"
            yield _sql(f"Query{place}", [end], text, **keys)
            end = f"Query{place}"

    def _texts(self) -> Iterator[tuple[str, dict[str, str]]]:
        found = [(query.text, query.keys) for query in self.queries]
        if self.nested:
            (first, keys), (second, others) = found
            second = second.replace("FROM input", "FROM first")
            found = [(f"WITH first AS ({first}) {second}", keys | others)]
        yield from found
        if self.updates:
            yield _updates_text(self.updates), {"grace": "0 s"}
        if self.totals:
            yield _TOTALS, {}

    @property
    def meanings(self) -> dict[str, Passing | Grouping]:
        """What the texts of queries mean, but for joins."""
        size = self.updates
        window = WindowSpec(size_ms=size, slide_ms=size) if size else None
        return {
            **{_PASSING[name]: Passing(name) for name in ("query", "filter")},
            **{
                _by_fewer_keys(self.join.keys): Passing("fewer", self.join.keys)
                for _ in "_"
                if self.join
            },
            _LOOKUP: Passing("lookup"),
            **{query.text: query.meaning for query in self.queries},
            _updates_text(size): Grouping("updates", 3, False, window),
            _TOTALS: Grouping("totals", 2, False, None),
        }

    @property
    def text(self) -> str:
        """The content of pipeline.yaml."""
        found = list(self.processors())
        readers = {name: each["id"] for each in found for name in each["from"]}
        for each in found:
            each["to"] = [readers.get(each["id"], "sink")]
            each["from"] = [name for name in each["from"] if name in self.topics]
        # Without sources, a processor has no key for them.
        processors = [{key: at for key, at in each.items() if at != []} for each in found]
        sources = {topic: topic for topic in self.all_topics}
        return json.dumps({"sources": sources, "processors": processors})

    def pipeline(self, inputs: Records, config: Config) -> Pipeline:
        """Return the pipeline as it is loaded, with these partitions of sources."""
        existing = {topic: sum(of == topic for of, _ in inputs) for topic in self.all_topics}
        return with_counts(load(self.text, config), {**existing, OUT: 2})


_TOTALS = (
    f"SELECT string(pmod(k, 2)) AS key, pmod(k, 2) AS k, {_IDS} FROM input GROUP BY pmod(k, 2)"
)
_LOOKUP = f"SELECT l.key, l.k, {_BOTH} FROM input l LEFT JOIN {ROWS} r ON l.key = r.key"


def _sql(name: str, inputs: list[str], query: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "type": "sql",
        "from": inputs,
        "format": "json",
        "schema": _SCHEMA,
        "query": query,
        "on_error": "skip",
        **more,
    }


def _passing(name: str, source: str, what: str) -> dict[str, Any]:
    if what in ("query", "filter"):
        return _sql(name, [source], _PASSING[what])
    return {"id": name, "type": _PASSING[what] or what, "from": [source], "on_error": "skip"}


def _updates_text(size_ms: int) -> str:
    window = f"window(timestamp, '{size_ms} milliseconds')"
    key = "concat_ws('|', pmod(k, 3), unix_millis(window.start)) AS key"
    grouped = f"{_IDS} FROM input GROUP BY pmod(k, 3), {window}"
    return f"SELECT {key}, pmod(k, 3) AS k, {grouped}"


def _by_fewer_keys(keys: int) -> str:
    return f"SELECT string(pmod(k, {keys})) AS key, pmod(k, {keys}) AS k, ids FROM input"


def _join_text(join: Join, left: str, right: str) -> str:
    k = "coalesce(l.k, r.k)"
    key = f"string({k}) AS key"
    if join.kind in TTL_JOINS:
        if join.kind == "left_ttl":
            # Of a row whose partner comes later, the key is another one.
            key = "concat_ws('+', l.ids[0], coalesce(r.ids[0], '-')) AS key"
        on = f"{TTL_JOINS[join.kind]} {right} r ON l.k = r.k"
    else:
        since, until = (f"INTERVAL {ms // 1000} SECONDS" for ms in (join.before_ms, join.after_ms))
        bounds = f"BETWEEN l.timestamp - {since} AND l.timestamp + {until}"
        on = f"{_JOINS[join.kind]} {right} r ON l.key = r.key AND r.timestamp {bounds}"
    return f"SELECT {key}, {k} AS k, {_BOTH} FROM {left} l {on}"


def _join_keys(join: Join) -> dict[str, str]:
    if join.kind in TTL_JOINS:
        return {"ttl": f"{join.grace_ms} ms"}
    return {"grace": f"{join.grace_ms} ms"}


def draw_sql(random: Random, *, becomes_idle: bool) -> Drawn[SqlPlan]:
    """Return a pipeline with its input and surroundings."""
    disorder = draw_disorder(random, _UNIT_MS)
    plan = _idle_plan(random) if becomes_idle else _plan(random, disorder)
    return drawn_around(plan, random, _UNIT_MS, disorder, becomes_idle=becomes_idle)


def _idle_plan(random: Random) -> SqlPlan:
    query = _query(random, random.choice(("tumbling", "hopping", "frames")), 0)
    query = replace(query, keyed=False)
    return SqlPlan((), (), None, (), before=_before(random), queries=(query,))


def _plan(random: Random, disorder: int) -> SqlPlan:
    join = _join(random) if random.random() < 0.3 else None
    table = random.choice(("", "", "in order", "history")) if join is None else ""
    before = _before(random)
    if table:
        # Ids are pairs by then.
        before = tuple(each for each in before if each != "filter")
    takes_back = join is not None and join.kind == "left_ttl"
    queries = _queries(random, disorder, is_joined=join is not None)
    queries = () if takes_back else queries
    if not table and not before and join is None:
        queries = (_judged_in_order(queries[0], disorder), *queries[1:])
    is_sure = all(q.level.kind != "sessions" or q.level.grace_ms >= disorder for q in queries)
    updates = 0
    if is_sure and not takes_back and (queries or not disorder) and random.random() < 0.2:
        updates = 10 * _UNIT_MS
    nested = len(queries) == 2 and random.random() < 0.2
    if nested:
        grace = max(each.level.grace_ms for each in queries)
        queries = tuple(replace(q, level=replace(q.level, grace_ms=grace)) for q in queries)
    direct = bool(table) or (not before and (join is not None or queries[0].keyed))
    if join is not None and direct:
        join = replace(join, keys=_MANY_KEYS)
    return SqlPlan(
        *((), (), join, ()),
        begins_with_windows=direct,
        table=table,
        before=before,
        queries=queries,
        between=random.choice(("", "", "query", "class", "batches")),
        nested=nested,
        updates=updates,
        totals=is_sure and not takes_back and not updates and random.random() < 0.2,
        direct=direct,
    )


def _queries(random: Random, disorder: int, *, is_joined: bool) -> tuple[Query, ...]:
    found: list[Query] = []
    for number in range(random.choice((0, 1, 1, 2) if is_joined else (1, 1, 2))):
        # What becomes of a pair would depend on which of the two records came second.
        least = disorder if is_joined and not number else 0
        found.append(_query(random, random.choice(_WINDOWED), least))
        level = found[-1].level
        if level.kind == "sessions" and level.grace_ms < disorder:
            break
    return tuple(found)


def _judged_in_order(query: Query, disorder: int) -> Query:
    """Return a query that reads a source: its sessions are judged as in Kafka Streams."""
    level = query.level
    if level.kind == "sessions" and query.keyed:
        level = replace(level, grace_ms=max(level.grace_ms, disorder))
    return replace(query, level=level)


def _before(random: Random) -> tuple[str, ...]:
    return tuple(random.choice(tuple(_PASSING)) for _ in range(random.choice((0, 1, 1, 2))))


def _query(random: Random, kind: str, least_grace_ms: int) -> Query:
    size = random.choice((3, 10, 30)) * _UNIT_MS
    advance = size // 2 if kind == "hopping" else size
    grace = max(random.choice((0, 0, 0, 1, 5, 20)) * _UNIT_MS, least_grace_ms)
    keyed = random.random() < 0.3
    keys = _MANY_KEYS if keyed else 3
    return Query(Level(kind, size, advance, grace, keys, 0), keyed)


def _join(random: Random) -> Join:
    kind = random.choice((*_JOINS, *TTL_JOINS))
    before, after = (random.choice((0, 5, 20)) * _UNIT_MS for _ in range(2))
    grace = random.choice((0, 0, 1, 5, 20)) * _UNIT_MS
    if kind in TTL_JOINS:
        before = after = grace = random.choice((1, 5, 20)) * _UNIT_MS
    return Join(kind, before, after, grace, 3, 0)
