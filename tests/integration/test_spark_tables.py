"""Lookup tables of queries that change while the queries run, on a real Spark without Kafka."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kafka_pipeline.streams.sql.queries import RunningQuery
from kafka_pipeline.streams.sql.spec import Queries, QuerySpec
from kafka_pipeline.streams.sql.tables import Rows
from tests.queries import FUNCTIONS, ROWS, results, run
from tests.tiers import long_but_the_first
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

SCHEMA = "code STRING, name STRING"
JOIN = "SELECT name AS value FROM input {} JOIN names ON key = code"


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """A file with a name for one of the keys."""
    file = tmp_path / "names.csv"
    file.write_text("k1,One\n")
    return file


def table(file: Path, **others: object) -> dict[str, dict[str, object]]:
    return {"names": {"format": "csv", "path": str(file), "schema": SCHEMA, **others}}


def opened(queries: Queries, spec: QuerySpec) -> RunningQuery:
    query = queries.open(spec)
    assert isinstance(query, RunningQuery)
    return query


def change(query: RunningQuery, **frames: object) -> None:
    """Let the query see other rows, as after a refresh."""
    tables = query._tables
    rows = {**tables.rows.frames, **frames}
    tables.rows = Rows(tables.rows.version + 1, rows)  # type: ignore[arg-type]


def test_table_is_read_again(queries: Queries, names: Path) -> None:
    """By a query that runs on meanwhile."""
    query = opened(queries, QuerySpec(JOIN.format(""), tables=table(names, refresh_s=1)))
    assert run(query, ROWS).values == [b"One", b"One"]
    names.write_text("k2,Two\n")
    wait_until(lambda: run(query, ROWS).values == [b"Two"])
    names.unlink()
    version = query._tables.rows.version
    assert not threading.Event().wait(2.5)
    assert query._tables.rows.version <= version + 1
    assert run(query, ROWS).values == [b"Two"]
    query.close()
    assert query._tables._closed.is_set()


def test_tables_that_are_read_at_the_same_time_do_not_bring_old_rows_back(
    queries: Queries, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read takes until the other one has ended."""
    both = {"slow": table(names)["names"], "quick": table(names)["names"]}
    query = opened(
        queries,
        QuerySpec(
            "SELECT concat(s.name, q.name) AS value FROM input "
            "JOIN slow s ON key = s.code JOIN quick q ON key = q.code",
            tables=both,
        ),
    )
    tables = query._tables
    read, quick_is_read = tables._read, threading.Event()
    names.write_text("k2,Two\n")

    def read_in_turn(name: str) -> object:
        if name == "slow":
            quick_is_read.wait(60)
        return read(name)

    monkeypatch.setattr(tables, "_read", read_in_turn)
    slow = threading.Thread(target=tables.refresh, args=("slow",))
    slow.start()
    tables.refresh("quick")
    quick_is_read.set()
    slow.join()
    assert tables.rows.version == 2
    assert run(query, ROWS).values == [b"TwoTwo"]
    query.close()


@pytest.mark.parametrize(
    ("how", "found"),
    long_but_the_first(
        [
            ("", []),
            ("LEFT SEMI", []),
            ("CROSS", []),
            ("LEFT", [None] * 4),
            ("LEFT ANTI", [b"a", b"b", b"c", b"d"]),
        ],
        2,
    ),
)
def test_table_without_rows_is_a_table(
    queries: Queries, names: Path, how: str, found: list[bytes | None]
) -> None:
    """At the start and later, until it has rows."""
    what = "value" if how in ("LEFT SEMI", "LEFT ANTI") else "name AS value"
    condition = "" if how == "CROSS" else "ON key = code"
    text = f"SELECT {what} FROM input {how} JOIN names {condition}"
    names.write_text("")
    query = opened(queries, QuerySpec(text, tables=table(names)))
    assert run(query, ROWS).values == found
    change(query, names=query._session.createDataFrame([("k1", "One")], SCHEMA))
    assert run(query, ROWS).values != found
    change(query, names=query._session.createDataFrame([], SCHEMA))
    assert run(query, ROWS).values == found
    query.close()


def test_filter_that_no_row_of_a_table_passes_gives_no_records(
    queries: Queries, names: Path
) -> None:
    spec = QuerySpec(JOIN.format("") + " WHERE name = 'Nobody'", tables=table(names))
    assert results(queries, spec) == []


@pytest.mark.parametrize("value", ["name", "concat(name, substr(uuid(), 1, 0))"])
def test_rows_that_do_not_fit_leave_the_old_ones_and_reject_no_record(
    queries: Queries, names: Path, value: str
) -> None:
    """This holds where the plan is kept, and where it is made for each batch."""
    text = f"SELECT {value} AS value FROM input JOIN names ON key = code"
    query = opened(queries, QuerySpec(text, tables=table(names)))
    session = query._session
    change(query, names=session.createDataFrame([("k1",)], "code STRING"))
    assert run(query, ROWS).values == [b"One", b"One"]
    assert run(query, ROWS).values == [b"One", b"One"]
    change(query, names=session.createDataFrame([("k2", "Two")], SCHEMA))
    assert run(query, ROWS).values == [b"Two"]
    query.close()


def test_rows_with_which_the_query_fails_while_it_runs_leave_the_old_ones(
    queries: Queries, names: Path
) -> None:
    """Such as a second row for a subquery that must have one."""
    text = "SELECT concat(value, (SELECT name FROM names)) AS value FROM input"
    query = opened(queries, QuerySpec(text, tables=table(names)))
    assert run(query, ROWS[:1]).values == [b"aOne"]
    rows = [("k1", "One"), ("k2", "Two")]
    change(query, names=query._session.createDataFrame(rows, SCHEMA))
    assert run(query, ROWS[:1]).values == [b"aOne"]
    query.close()


def test_function_that_fails_on_new_rows_leaves_the_old_ones(queries: Queries, names: Path) -> None:
    spec = QuerySpec(function=f"{FUNCTIONS}:single", tables=table(names))
    query = opened(queries, spec)
    assert run(query, ROWS[:1]).values == [b"aOne"]
    rows = [("k1", "One"), ("k2", "Two")]
    change(query, names=query._session.createDataFrame(rows, SCHEMA))
    assert run(query, ROWS[:1]).values == [b"aOne"]
    query.close()


def test_lookup_in_a_join_of_large_tables_is_broadcast(queries: Queries, tmp_path: Path) -> None:
    """Spark takes the product of their sizes for the size of the join."""
    size = 30_000
    tables = {}
    for name in "ab":
        file = tmp_path / f"{name}.csv"
        file.write_text("".join(f"k{number},{name}{number:040}\n" for number in range(size)))
        tables[name] = {"format": "csv", "path": str(file), "schema": SCHEMA}
    text = (
        "SELECT concat(x, y) AS value FROM input {} JOIN "
        "(SELECT a.code, a.name AS x, b.name AS y FROM a JOIN b ON a.code = b.code) ON key = code"
    )
    for how in ("", "LEFT"):
        found = results(queries, QuerySpec(text.format(how), tables=tables), ROWS[:1])
        assert [value for _, value, _ in found] == [f"a{1:040}b{1:040}".encode()]
