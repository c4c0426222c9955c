"""Queries on a real Spark, batch by batch, without Kafka."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.columns import batch_of, table_of
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.queries import SparkQueries
from kafka_pipeline.streams.sql.spec import Queries, QueryError, QuerySpec
from kafka_pipeline.testing import TopologyTestDriver
from tests.in_process import invoke
from tests.queries import FUNCTIONS, ROOT, ROWS, batch, refusal, results, run
from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

OF_SCHEMA = {"format": "json", "schema": "a INT, b STRING"}
CONFIG = (
    SMALL_CONFIG
    + f"""modules: [{FUNCTIONS}]
python_path: ["{ROOT}"]
"""
)


@pytest.fixture
def airports(tmp_path: Path) -> dict[str, dict[str, object]]:
    file = tmp_path / "airports.csv"
    file.write_text("code,name\nk1,One\nk3,Three\n")
    return {"airports": {"format": "csv", "path": str(file), "options": {"header": "true"}}}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT key, upper(value) AS value FROM input WHERE value <> 'b'",
            [(b"k1", b"A", 10), (b"k1", b"C", 12), (None, b"D", 13)],
        ),
        ("SELECT value FROM input WHERE key = 'k2'", [(None, b"b", 11)]),
        (
            "SELECT key, offset * 10 + partition AS value FROM input WHERE offset < 102",
            [(b"k1", b"1002", 10), (b"k2", b"1012", 11)],
        ),
        (
            "WITH a AS (SELECT key k, explode(array(value, 'x')) v FROM input WHERE offset = 101)"
            "SELECT k AS key, v AS value FROM a",
            [(b"k2", b"b", 11), (b"k2", b"x", 11)],
        ),
        (
            "SELECT value, timestamp + INTERVAL 1 SECOND AS timestamp FROM input WHERE key IS NULL",
            [(None, b"d", 1013)],
        ),
        (
            "SELECT key, CAST(NULL AS STRING) AS value FROM input WHERE value = 'b'",
            [(b"k2", None, 11)],
        ),
    ],
)
def test_query_makes_records_of_records(
    queries: Queries, query: str, expected: list[tuple[bytes | None, bytes | None, int]]
) -> None:
    """A row has the time of its record, unless the query gives another one."""
    assert results(queries, QuerySpec(query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT key, name AS value FROM input LEFT JOIN airports ON key = code",
            [(b"k1", b"One"), (b"k2", None), (b"k1", b"One"), (None, None)],
        ),
        (
            "SELECT key, name AS value FROM airports JOIN input ON key = code",
            [(b"k1", b"One"), (b"k1", b"One")],
        ),
        (
            "SELECT key, value FROM input WHERE key NOT IN (SELECT code FROM airports)",
            [(b"k2", b"b")],
        ),
        (
            "SELECT key, n AS value FROM input "
            "JOIN (SELECT code, count(*) n FROM airports GROUP BY code) ON key = code",
            [(b"k1", b"1"), (b"k1", b"1")],
        ),
    ],
)
def test_lookup_tables_keep_the_order_of_records(
    queries: Queries,
    airports: dict[str, dict[str, object]],
    query: str,
    expected: list[tuple[bytes | None, bytes | None]],
) -> None:
    """Though a batch is smaller than the table, it is the table that is broadcast."""
    found = results(queries, QuerySpec(query, tables=airports))
    assert [(key, value) for key, value, _ in found] == expected


def test_json_is_columns_on_the_way_in_and_out(queries: Queries) -> None:
    spec = QuerySpec("SELECT key, a + 1 AS a, b FROM input", **OF_SCHEMA)  # type: ignore[arg-type]
    rows = [("k", '{"a": 1, "b": "x"}'), (None, '{"a": 2}'), ("k", None)]
    assert results(queries, spec, rows) == [
        (b"k", b'{"a":2,"b":"x"}', 10),
        (None, b'{"a":3,"b":null}', 11),
        (b"k", b'{"a":null,"b":null}', 12),
    ]


FLOATS = {
    "format": "json",
    "schema": "d DOUBLE, f FLOAT, s STRUCT<a: ARRAY<DOUBLE>, m: MAP<STRING, FLOAT>>, t STRING",
}


@pytest.mark.parametrize(
    "value",
    long_but_the_first(
        [
            '{"d": "NaN"}',
            '{"d": "Infinity"}',
            '{"f": 1e39}',
            '{"f": "-INF"}',
            '{"s": {"a": [1, "NaN"]}}',
            '{"s": {"m": {"x": 1e39}}}',
            '{"d": 1' + "0" * 400 + "}",
        ],
        2,
    ),
)
def test_numbers_that_no_float_holds_do_not_come_in(queries: Queries, value: str) -> None:
    spec = QuerySpec("SELECT d, f, s, t FROM input", **FLOATS)  # type: ignore[arg-type]
    with pytest.raises(QueryError):
        results(queries, spec, [(None, value)])


@pytest.mark.parametrize(
    "column",
    [
        "sqrt(-1 - d) AS x",
        "d / 1e-308 / 1e-308 AS x",
        "float('NaN') AS x",
        "array(struct(map('a', double('Infinity')) AS m)) AS x",
    ],
)
def test_numbers_that_json_does_not_have_do_not_leave(queries: Queries, column: str) -> None:
    spec = QuerySpec(f"SELECT {column} FROM input", **FLOATS)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="NaN or an infinite number for x, which JSON does not"):
        results(queries, spec, [(None, '{"d": 1.5}')])


def test_finite_numbers_of_all_types_pass(queries: Queries) -> None:
    spec = QuerySpec("SELECT d, f, s, t FROM input", **FLOATS)  # type: ignore[arg-type]
    value = '{"d":1.5,"f":0.5,"s":{"a":[1.0,null],"m":{"x":2.0}},"t":"NaN"}'
    nulls = '{"d":null,"f":null,"s":null,"t":null}'
    found = results(queries, spec, [(None, value), (None, "{}")])
    assert [each.decode() for _, each, _ in found if each] == [value, nulls]


def test_lenient_json_is_what_spark_reads(queries: Queries) -> None:
    spec = QuerySpec("SELECT t, d > 5 AS b FROM input", is_lenient=True, **FLOATS)  # type: ignore[arg-type]
    rows = [(None, "{'t': 'x', 'd': NaN} tail"), (None, ""), (None, '{"d": "Infinity"}')]
    query = queries.open(spec)
    table, wrong = table_of(batch(rows), 0, query.columns, "json", is_lenient=True)
    assert wrong == ""
    assert batch_of(query.run(table)).values == [
        b'{"t":"x","b":true}',
        b'{"t":null,"b":null}',
        b'{"t":null,"b":true}',
    ]


def test_binary_records_stay_bytes(queries: Queries) -> None:
    query = queries.open(QuerySpec("SELECT key, value FROM input", format="binary"))
    table, _ = table_of(Batch([b"\xff"], [b"\x00\xfe"], [1]), 0, query.columns, "binary")
    out = batch_of(query.run(table))
    assert (out.keys, out.values) == ([b"\xff"], [b"\x00\xfe"])


def test_headers_are_there_for_queries_that_ask_for_them(queries: Queries) -> None:
    query = queries.open(
        QuerySpec("SELECT headers[0].key AS value, headers FROM input WHERE size(headers) > 0")
    )
    given = Batch([None, None], [b"v", b"w"], [1, 2], [[("h", b"x")], None])
    table, _ = table_of(given, 0, query.columns, "string")
    out = batch_of(query.run(table))
    assert (out.values, out.headers) == ([b"h"], [[("h", b"x")]])


@pytest.mark.parametrize(
    ("query", "reason"),
    long_but_the_first(
        [
            (
                "SELECT key, count(*) AS value FROM input GROUP BY key",
                "GROUP BY and aggregates need all rows of a key",
            ),
            ("SELECT count(*) AS value FROM input", "Aggregate"),
            ("SELECT DISTINCT value FROM input", "DISTINCT"),
            ("SELECT value FROM input ORDER BY value", "ORDER BY"),
            ("SELECT value FROM input SORT BY value", "ORDER BY"),
            ("SELECT value FROM input LIMIT 3", "LIMIT"),
            ("SELECT value, row_number() OVER (ORDER BY offset) FROM input", "OVER"),
            ("SELECT value FROM input DISTRIBUTE BY key", "DISTRIBUTE BY"),
            ("SELECT value FROM input UNION ALL SELECT key FROM input", "UNION"),
            ("SELECT value FROM input EXCEPT SELECT name FROM airports", "EXCEPT"),
            ("SELECT value FROM input TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
            (
                "SELECT a.value FROM input a JOIN input b ON a.key = b.key",
                "JOIN of input with itself",
            ),
            ("SELECT name AS value FROM airports LEFT JOIN input ON key = code", "on the right"),
            ("SELECT value FROM input FULL JOIN airports ON key = code", "FullOuter"),
            (
                "SELECT value FROM input WHERE key IN (SELECT key FROM input)",
                "a subquery reads input",
            ),
            ("SELECT name AS value FROM airports", "that reads input"),
            ("SELECT value FROM input WHERE 1 = 0", "gives no row"),
            ("SELECT TRANSFORM(key) USING 'cat' AS (value STRING) FROM input", "TRANSFORM"),
            (
                "SELECT value FROM input JOIN"
                " (SELECT TRANSFORM(code) USING 'cat' AS (c STRING) FROM airports) ON key = c",
                "TRANSFORM",
            ),
            ("SELECT reflect('java.lang.System', 'exit') AS value FROM input", "reflect"),
            ("SELECT java_method('java.lang.System', 'exit') AS value FROM input", "java_method"),
            ("CREATE TABLE t AS SELECT value FROM input", "SELECT|CREATE|Hive"),
            ("SET spark.sql.ansi.enabled = false", "only a SELECT"),
            ("EXECUTE IMMEDIATE 'SELECT value FROM input'", "only a SELECT"),
            ("EXECUTE IMMEDIATE 'SELECT key, value FROM airports'", "only a SELECT"),
            ("BEGIN SELECT value FROM input; END", "only a SELECT"),
            ("WITH a AS (SELECT value FROM input) INSERT INTO t SELECT * FROM a", "only a SELECT"),
            ("FROM input INSERT INTO t SELECT value", "only a SELECT"),
            ("SELECT value FROM input; SELECT 1", "several statements, with a semicolon"),
            ("SELEC value", "Syntax error .*line 1, column 1"),
            ("SELECT valu FROM input", r"`valu` cannot be resolved.*`value`.*line 1, column 8"),
            ("SELECT value FROM inputs", "`inputs` cannot be found"),
            ("SELECT key FROM input", "gives key, timestamp: it must give value"),
            ("SELECT key, value, offset FROM input", "gives key, value, offset"),
            ("SELECT key AS value, value FROM input", "two columns of one name"),
            ("SELECT struct(key) AS value FROM input", r"to_json\(value\)"),
            ("SELECT value, 1 AS timestamp FROM input", "make it a TIMESTAMP"),
        ],
        5,
    ),
)
def test_queries_that_need_more_than_a_record_are_refused_with_the_reason(
    queries: Queries, airports: dict[str, dict[str, object]], query: str, reason: str
) -> None:
    """The refusal is one line, and comes at the start: none of them is ever executed."""
    found = refusal(queries, QuerySpec(query, tables=airports))
    assert re.search(reason, found), found


def test_table_that_is_not_there_is_named(queries: Queries, tmp_path: Path) -> None:
    spec = QuerySpec(
        "SELECT value FROM input", tables={"t": {"format": "csv", "path": f"{tmp_path}/t.csv"}}
    )
    assert f'table "t" cannot be read: Path does not exist: file:{tmp_path}/t.csv' in refusal(
        queries, spec
    )


def test_query_that_uses_nothing_of_its_input_has_a_result_for_each_record(
    queries: Queries,
) -> None:
    query = "SELECT 'tick' AS value, TIMESTAMP '1970-01-01 00:00:01' AS timestamp FROM input"
    assert results(queries, QuerySpec(query)) == [(None, b"tick", 1000)] * len(ROWS)


@pytest.mark.parametrize(
    "expression",
    long_but_the_first(
        [
            "uuid()",
            "rand()",
            "current_timestamp()",
            "now()",
            "localtimestamp()",
            "TIMESTAMP 'now'",
            "CAST('now' AS TIMESTAMP)",
            "timestamp('NOW')",
        ],
        3,
    ),
)
def test_random_numbers_and_times_differ_from_batch_to_batch(
    queries: Queries, expression: str
) -> None:
    """Their plans are created again; the seed and the time are fixed in a plan."""
    query = queries.open(QuerySpec(f"SELECT {expression} AS value FROM input"))
    assert run(query, ROWS[:1]).values != run(query, ROWS[:1]).values
    query.close()


def test_queries_of_several_threads_do_not_disturb_each_other(queries: Queries) -> None:
    """Each has a view `input` of its own."""
    opened = {
        name: queries.open(QuerySpec(f"SELECT concat(value, '{name}') AS value FROM input"))
        for name in "xyz"
    }
    found: dict[str, list[object]] = {}

    def work(name: str) -> None:
        found[name] = [run(opened[name], ROWS[:1]).values for _ in range(5)]

    threads = [threading.Thread(target=work, args=(name,)) for name in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: [[f"a{name}".encode()]] * 5 for name in opened}


def test_function_gets_a_dataframe_and_returns_one(queries: Queries) -> None:
    spec = QuerySpec(function=f"{FUNCTIONS}:loud", config={"suffix": "?"})
    assert results(queries, spec)[:2] == [(b"k1", b"A!?", 10), (b"k2", b"B!?", 11)]
    found = results(queries, QuerySpec(function=f"{FUNCTIONS}:reversed_values"), [("k", "abc")])
    assert found == [(None, b"cba", 10)]


def test_function_is_found_in_its_own_python_path_by_a_spark_that_runs_already(
    queries: Queries, tmp_path: Path
) -> None:
    results(queries, QuerySpec(query="SELECT value FROM input"))
    source = "from pyspark.sql import functions as F\nfrom pyspark.sql.types import StringType\n"
    source += "turn = F.udf(lambda text: turned(text), StringType())\n"
    source += "def turned(text):\n    return text[::-1]\n"
    source += "def all_turned(frame):\n    return frame.select(turn('value').alias('value'))\n"
    (tmp_path / "turning.py").write_text(source)
    others = LocalQueries(UserCode(["turning"], [tmp_path]), Readable())
    found = results(others, QuerySpec(function="turning:all_turned"), [("k", "abc")])
    assert found == [(None, b"cba", 10)]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("counted", "add group_by: {key: true}"),
        ("nothing", "returns a NoneType: it must return a DataFrame"),
        ("failing", "fails: KeyError: 'model' (tests/user_code/frames.py:45 in failing)"),
        ("timeless", "hides which record a row stems from"),
        ("missing", 'has no "missing"'),
    ],
)
def test_functions_that_cannot_be_run_are_refused(
    queries: Queries, function: str, reason: str
) -> None:
    assert reason in refusal(queries, QuerySpec(function=f"{FUNCTIONS}:{function}"))


def test_code_that_is_not_allowed_is_not_called(queries: Queries) -> None:
    assert "is not on the list" in refusal(queries, QuerySpec(function="os:getcwd"))


def test_queries_are_refused_where_spark_has_no_slot_for_them(queries: Queries) -> None:
    with pytest.raises(QueryError, match="no slot"):
        SparkQueries(None, UserCode(), Readable(), "no slot").open(  # type: ignore[arg-type]
            QuerySpec()
        )


def pipeline_with(keys: str, on_error: str) -> str:
    return f"- {{id: P, {keys}, to: [sink], on_error: {on_error}}}\n"


@pytest.mark.parametrize(
    ("keys", "good", "bad", "reason"),
    [
        (
            'type: sql, query: "SELECT key, CAST(value AS INT) AS value FROM input"',
            b"1",
            b"one",
            "cannot be cast",
        ),
        (
            'type: sql, query: SELECT a FROM input, format: json, schema: "a INT"',
            b'{"a":1}',
            b'{"a":"one"}',
            "INT",
        ),
        (
            'type: sql, query: SELECT a FROM input, format: json, schema: "a INT"',
            b'{"a":1}',
            b"no json",
            "",
        ),
        ("type: sql, query: SELECT value FROM input", b"v", b"\xff", "the value is not UTF-8"),
        (f'type: dataframe, function: "{FUNCTIONS}:loud"', b"v", b"bad", "ValueError: no good"),
    ],
)
def test_a_bad_record_is_a_dead_letter_and_the_others_go_on(
    queries: Queries, tmp_path: Path, keys: str, good: bytes, bad: bytes, reason: str
) -> None:
    """On the driver for tests, which runs its own Spark."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "pipeline.yaml").write_text(pipeline_with(keys, "dead_letter"))
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        source = driver.create_input_topic("in")
        for value in (good, bad, good):
            source.pipe_input(b"k", value, timestamp=1)
        (letter,) = driver.create_output_topic("P_dead_letter").read_records()
        assert len(driver.create_output_topic("out").read_records()) == 2
    assert letter.value == bad
    message = dict(letter.headers)["__streams.errors.message"]
    assert message is not None
    assert reason in message.decode()


CARD = "4111111111111111"


@pytest.mark.parametrize(
    ("spec", "value", "shown"),
    [
        (
            QuerySpec("SELECT CAST(value AS INT) AS value FROM input"),
            CARD,
            r"CAST_INVALID_INPUT \(SQLSTATE 22018\)",
        ),
        (
            QuerySpec("SELECT CAST(value AS DATE) AS value FROM input"),
            CARD,
            r"CAST_INVALID_INPUT \(SQLSTATE 22018\)",
        ),
        (
            QuerySpec("SELECT a FROM input", format="json", schema="a INT"),
            f'{{"a": "{CARD}"}}',
            r"(MALFORMED_RECORD_IN_PARSING|CANNOT_PARSE_JSON_FIELD)[.A-Z_]* \(SQLSTATE 22\w+\)",
        ),
        (
            QuerySpec("SELECT a FROM input", format="json", schema="a ARRAY<DOUBLE>"),
            f'{{"a": ["{CARD}"]}}',
            r"CANNOT_PARSE_JSON_FIELD \(SQLSTATE 2203G\)",
        ),
        (
            QuerySpec("SELECT raise_error('the card is refused ' || key) AS value FROM input"),
            CARD,
            "the card is refused k",
        ),
        (
            QuerySpec(function=f"{FUNCTIONS}:numbers"),
            f"{CARD}x",
            r"ValueError \(frames.py:\d+ in .*",
        ),
        (QuerySpec(function=f"{FUNCTIONS}:cast_to_int"), CARD, r"CAST_INVALID_INPUT \(SQLST.*"),
    ],
)
def test_what_spark_quotes_of_a_record_is_not_shown(
    queries: Queries,
    spec: QuerySpec,
    value: str,
    shown: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(QueryError) as raised:
        results(queries, spec, [("k", value)])
    assert re.fullmatch(shown, raised.value.shown), (raised.value.shown, str(raised.value))
    assert (CARD in str(raised.value)) is not (
        "raise_error" in spec.query or "ARRAY" in spec.schema
    )
    printed = capfd.readouterr()
    assert CARD not in printed.out + printed.err


def test_validate_has_spark_check_the_queries(queries: Queries, tmp_path: Path) -> None:
    """The error has the line of the processor."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "- {id: A, type: sql, query: SELECT valu FROM input, to: [B]}\n"
        "- {id: B, type: sql, query: SELECT value FROM input, to: [sink]}\n"
    )
    command = ("validate", tmp_path / "config.yaml", file)
    found = invoke(*command)
    assert found.exit_code == 2
    assert f'{file}:1:8: "A": ' in found.output
    assert "`valu` cannot be resolved" in found.output
    file.write_text(file.read_text().replace("valu ", "value "))
    assert invoke(*command).exit_code == 0


def test_no_statement_runs_though_it_stands_in_another_one(
    queries: Queries, tmp_path: Path
) -> None:
    """Spark runs what EXECUTE IMMEDIATE names while it analyzes the statement."""
    folder = tmp_path / "written"
    command = f"INSERT OVERWRITE DIRECTORY '{folder}' USING csv SELECT 1"
    for query in (f'EXECUTE IMMEDIATE "{command}"', f"BEGIN {command}; END", command):
        refusal(queries, QuerySpec(query))
        assert not folder.exists(), query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT value FROM input ; ",
        "-- all; of them\nSELECT value FROM input; -- done; really",
        "/* all */ SELECT value FROM input -- done;",
        "SELECT value /* ; */ FROM input\n;\n; /* done; */\n",
        "SELECT value FROM input WHERE value <> ';';",
    ],
)
def test_comments_and_semicolons_around_a_query_do_not_matter(queries: Queries, query: str) -> None:
    assert len(results(queries, QuerySpec(query))) == len(ROWS)
