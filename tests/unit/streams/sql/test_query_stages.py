"""Queries that are cut into stages, as text."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.sql.query_stages import MOST_STAGES
from kafka_pipeline.streams.sql.query_text import read_stages
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.stage import Stage

JOINED = (
    "SELECT o.k FROM orders o JOIN payments p ON o.key = p.key "
    "AND p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 HOUR"
)


def cut(query: str, *tables: str) -> dict[str, str]:
    """Return the queries of the stages of a processor P by their names."""
    stages = read_stages(query, tables, "P")
    assert len({stage.name for stage in stages}) == len(stages)
    return {stage.name: stage.query for stage in stages}


def test_subquery_with_groups_below_groups_is_a_stage_with_its_alias() -> None:
    query = (
        "SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM input GROUP BY k) AS Counts "
        "WHERE n > 1 GROUP BY n"
    )
    assert cut(query) == {
        "Counts": "SELECT k, count(*) AS n FROM input GROUP BY k",
        "": "SELECT n, count(*) FROM `P.Counts` AS Counts WHERE n > 1 GROUP BY n",
    }


def test_subqueries_without_an_alias_are_numbered_from_the_inside() -> None:
    query = (
        "SELECT m, count(*) FROM (SELECT n, count(*) AS m FROM "
        f"(SELECT DISTINCT n FROM ({JOINED})) GROUP BY n) GROUP BY m"
    )
    assert cut(query) == {
        "1": JOINED,
        "2": "SELECT DISTINCT n FROM `P.1`",
        "3": "SELECT n, count(*) AS m FROM `P.2` GROUP BY n",
        "": "SELECT m, count(*) FROM `P.3` GROUP BY m",
    }


def test_ctes_are_stages_if_they_meet_records_and_stay_otherwise() -> None:
    query = (
        "WITH good AS (SELECT k, v FROM input WHERE v > 0), "
        "sums AS (SELECT k, sum(v) AS s FROM good GROUP BY k) "
        "SELECT s, count(*) FROM sums GROUP BY s"
    )
    assert cut(query) == {
        "sums": "WITH good AS (SELECT k, v FROM input WHERE v > 0) "
        "SELECT k, sum(v) AS s FROM good GROUP BY k",
        "": "SELECT s, count(*) FROM `P.sums` AS sums GROUP BY s",
    }


def test_cte_with_its_own_ctes_takes_those_around_it_along() -> None:
    query = (
        "WITH a AS (SELECT k FROM input), "
        "b AS (WITH c AS (SELECT k FROM a) SELECT DISTINCT k FROM c) "
        "SELECT k, count(*) FROM b AS x GROUP BY k"
    )
    assert cut(query)["b"] == (
        "WITH a AS (SELECT k FROM input), c AS (SELECT k FROM a) SELECT DISTINCT k FROM c"
    )
    assert cut(query)[""].endswith("SELECT k, count(*) FROM `P.b` AS x GROUP BY k")


def test_cte_that_is_read_twice_is_one_stage() -> None:
    query = (
        "WITH a AS (SELECT DISTINCT k FROM input), b AS (SELECT k, count(*) AS n FROM a GROUP BY k)"
        " SELECT a.k, b.n FROM a JOIN b ON a.key = b.key AND a.timestamp = b.timestamp"
    )
    found = cut(query)
    assert list(found) == ["a", "b", ""]
    assert found["b"] == "SELECT k, count(*) AS n FROM `P.a` AS a GROUP BY k"
    assert "FROM `P.a` AS a JOIN `P.b` AS b ON" in found[""]


def test_columns_that_a_cte_names_are_those_of_its_stage() -> None:
    query = "WITH a (x, y) AS (SELECT DISTINCT k, v FROM input) SELECT x, max(y) FROM a GROUP BY x"
    assert cut(query)["a"] == "SELECT * FROM (SELECT DISTINCT k, v FROM input) AS a (x, y)"


def test_inputs_of_a_join_may_be_stages() -> None:
    query = (
        "SELECT c.n, p.paid FROM (SELECT key, count(*) AS n FROM orders GROUP BY key) c "
        "LEFT JOIN payments p ON c.key = p.key AND c.timestamp = p.timestamp"
    )
    assert cut(query)[""] == (
        "SELECT c.n, p.paid FROM `P.c` c "
        "LEFT JOIN payments p ON c.key = p.key AND c.timestamp = p.timestamp"
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM (SELECT k, v FROM input) WHERE v > 1",
        "SELECT k FROM (SELECT k, count(*) AS n FROM input GROUP BY k) WHERE n > 1",
        "WITH a AS (SELECT k FROM input), b AS (SELECT k FROM a) SELECT k FROM b GROUP BY k",
        "SELECT k FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS p FROM input) "
        "WHERE p <= 3",
        "SELECT k, count(*) FROM input WHERE k IN (SELECT code FROM shops) GROUP BY k",
        "SELECT k, count(*) FROM input i JOIN (SELECT code, max(v) FROM shops GROUP BY code) s "
        "ON i.k = s.code GROUP BY k",
        f"SELECT k FROM ({JOINED})",
        "SELECT k, (SELECT max(v) FROM shops) FROM input GROUP BY k",
        "SELECT k FROM (SELECT k FROM input GROUP BY k) WHERE k IS DISTINCT FROM 3",
        "WITH a AS (SELECT k FROM input GROUP BY k) SELECT k FROM a |> DROP k",
        "WITH RECURSIVE a AS (SELECT k FROM input GROUP BY k) SELECT k, count(*) FROM a GROUP BY k",
        "SELECT k, FROM (SELECT",
    ],
)
def test_query_that_needs_no_stages_stays_as_it_is(query: str) -> None:
    assert cut(query, "shops") == {"": query}


def test_cte_in_an_expression_is_taken_along() -> None:
    query = (
        "WITH good AS (SELECT code FROM shops WHERE open), "
        "b AS (SELECT DISTINCT k FROM input WHERE k IN (SELECT code FROM good)) "
        "SELECT k, count(*) FROM b GROUP BY k"
    )
    assert cut(query, "shops")["b"] == (
        "WITH good AS (SELECT code FROM shops WHERE open) "
        "SELECT DISTINCT k FROM input WHERE k IN (SELECT code FROM good)"
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "SELECT k, count(*) FROM (SELECT DISTINCT k FROM (SELECT k FROM input GROUP BY k) "
            "`my counts`) AS a GROUP BY k",
            '"my counts" groups or joins records for a further part of the query, so it becomes a '
            'processor of that name, which has the character " "',
        ),
        (
            "SELECT k, count(*) FROM (SELECT DISTINCT k FROM (SELECT k FROM input GROUP BY k) a) A "
            "GROUP BY k",
            "two parts of the query are called A, and both become a processor of that name",
        ),
    ],
)
def test_names_that_cannot_be_those_of_stages_are_refused(query: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        cut(query)
    assert reason in str(caught.value)


def test_places_in_a_stage_are_those_of_the_whole_query() -> None:
    query = (
        "WITH a AS (\n  SELECT k,\n    wrong FROM input GROUP BY k)\n"
        "SELECT k, count(*),\n  bad FROM a GROUP BY k"
    )
    inner, last = read_stages(query, (), "P")
    assert placed(inner, "wrong") == "(line 3, column 5)"
    assert placed(last, "bad") == "(line 5, column 3)"
    assert placed(last, "GROUP") == "(line 5, column 14)"


def placed(stage: Stage, word: str) -> str:
    before = stage.query[: stage.query.index(word)]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return stage.placed(f"(line {line}, column {column})")


def test_number_of_stages_is_limited() -> None:
    query = "input"
    for _ in range(MOST_STAGES):
        query = f"(SELECT DISTINCT k FROM {query})"
    assert len(cut(f"{query[1:-1]}")) == MOST_STAGES
    with pytest.raises(QueryError, match="joins records 17 times, and may do so 16 times"):
        cut(f"SELECT DISTINCT k FROM {query}")


def test_only_tables_are_replaced() -> None:
    query = (
        "WITH a AS (SELECT DISTINCT a FROM input) SELECT a, count(*) /* from a, */ FROM a "
        "WHERE a IS DISTINCT FROM a AND extract(DAY FROM a) > 1 AND a IN (a, 'from a') GROUP BY a"
    )
    assert cut(query)[""] == query.split(") ", 1)[1].replace("*/ FROM a", "*/ FROM `P.a` AS a")


def test_query_takes_its_stages_and_their_tables_to_the_driver() -> None:
    inner = QuerySpec(query="SELECT 1", tables={"a": {"format": "csv"}}, is_inner=True)
    middle = QuerySpec(query="SELECT 2", stages={"P.a": inner}, inputs=("P.a",), is_inner=True)
    last = QuerySpec(query="SELECT 3", stages={"P.b": middle}, tables={"b": {"format": "csv"}})
    assert QuerySpec.from_json(last.to_json()) == last
    assert last.all_tables == {"a": {"format": "csv"}, "b": {"format": "csv"}}


HOUR = "DESCRIPTOR(timestamp), INTERVAL '1' HOUR"


def test_table_functions_read_ctes_and_stages() -> None:
    query = (
        "WITH a AS (SELECT x, timestamp FROM input), "
        f"b AS (SELECT x, count(*) AS n FROM TUMBLE(TABLE a, {HOUR}) GROUP BY x, window_start, "
        f"window_end) SELECT sum(n) FROM TABLE(TUMBLE(TABLE b, {HOUR})) GROUP BY window_start, "
        "window_end"
    )
    assert cut(query) == {
        "b": f"WITH a AS (SELECT x, timestamp FROM input) SELECT x, count(*) AS n FROM "
        f"TUMBLE(TABLE a, {HOUR}) GROUP BY x, window_start, window_end",
        "": f"SELECT sum(n) FROM TABLE(TUMBLE(TABLE `P.b` AS b, {HOUR})) GROUP BY window_start, "
        "window_end",
    }


def test_parentheses_around_what_is_read_change_nothing() -> None:
    query = "SELECT n, count(*) FROM ((SELECT x, count(*) AS n FROM input GROUP BY x)) g GROUP BY n"
    assert cut(query) == {
        "1": "SELECT x, count(*) AS n FROM input GROUP BY x",
        "": "SELECT n, count(*) FROM (`P.1`) g GROUP BY n",
    }


@pytest.mark.parametrize(
    ("read", "stages"),
    [
        ("(a JOIN b USING (id))", ["FROM a JOIN b USING (id) "]),
        ("((a JOIN b ON 1))JOIN l ON 2", ["FROM a JOIN b ON 1  JOIN l ON 2"]),
        (
            "(a JOIN b ON 1) LEFT JOIN c ON 2",
            ["FROM a JOIN b ON 1", "FROM `P.a_b` LEFT JOIN c ON 2"],
        ),
        ("l, (a JOIN b ON 1)", ["FROM l, a JOIN b ON 1 "]),
        (
            "a LEFT OUTER JOIN (b JOIN c ON 1) ON 2 JOIN l ON 3",
            ["FROM b JOIN c ON 1", "FROM `P.b_c` RIGHT OUTER JOIN a ON 2 JOIN l ON 3"],
        ),
        (
            "l, a CROSS JOIN (b RIGHT JOIN (c JOIN d ON 1 IS DISTINCT FROM 2) ON 3)",
            [
                "FROM l, c JOIN d ON 1 IS DISTINCT FROM 2",
                "FROM `P.l_c_d` LEFT JOIN b ON 3",
                "FROM `P.l_c_d_b` CROSS JOIN a",
            ],
        ),
        (
            "a JOIN (b JOIN c ON 1) x ON x.i = 1",
            ["FROM b JOIN c ON 1", "FROM a JOIN `P.x` x ON x.i = 1"],
        ),
        ("a LEFT JOIN (l JOIN l m ON 1) ON 2", ["FROM a LEFT JOIN (l JOIN l m ON 1) ON 2"]),
        ("l JOIN (a JOIN l m ON 1) ON 2", ["FROM l JOIN (a JOIN l m ON 1) ON 2"]),
        ("l JOIN (a JOIN b ON 1) ON 2", ["FROM a JOIN b ON 1 JOIN l ON 2"]),
    ],
)
def test_joins_in_parentheses_are_joined_without(read: str, stages: list[str]) -> None:
    found = cut(f"SELECT 1 AS x FROM {read}", "l").values()
    assert [each[each.index("FROM") :] for each in found] == stages


def test_places_in_joins_in_parentheses_are_those_in_the_query() -> None:
    query = "SELECT b.y\nFROM a\nLEFT JOIN (\nb JOIN c ON b.x = c.wrong\n) ON\na.id = b.id"
    first, last = read_stages(query, (), "P")
    at = first.query.index("c.wrong") + 1
    assert first.placed(f"wrong (line 1, column {at})") == "wrong (line 4, column 19)"
    assert last.query.splitlines()[-1] == "a.id = b.id"
    assert last.placed("wrong (line 3, column 8)") == "wrong (line 6, column 8)"


COMMA = "FROM a A, b WHERE A.id = b.id AND b.t BETWEEN A.t AND A.e"


def test_joins_of_a_select_that_groups_them_are_a_stage_called_after_its_tables() -> None:
    query = f"SELECT A.x, max(b.y) AS m {COMMA} GROUP BY A.x, A.id HAVING m > 1"
    assert cut(query) == {
        "a_b": f"SELECT struct(`a`.`id`, `a`.`x`) AS `a`, struct(`b`.`y`) AS `b` {COMMA}",
        "": "SELECT A.x, max(b.y) AS m FROM `P.a_b` GROUP BY A.x, A.id HAVING m > 1",
    }


@pytest.mark.parametrize(
    "select",
    [
        "SELECT DISTINCT A.x {}",
        "SELECT x FROM (SELECT A.x, row_number() OVER (PARTITION BY A.x ORDER BY A.x) AS n {}) "
        "WHERE n = 1",
        "SELECT A.x, lag(A.x) OVER (PARTITION BY A.x ORDER BY A.x) AS n {}",
    ],
)
def test_joins_below_other_groups_are_a_stage_too(select: str) -> None:
    assert cut(select.format(COMMA)) == {
        "a_b": f"SELECT struct(`a`.`x`) AS `a` {COMMA}",
        "": select.format("FROM `P.a_b`"),
    }


def test_all_columns_of_a_table_and_those_without_a_table() -> None:
    query = "SELECT id, a.*, max(y) FROM a JOIN b USING (id) GROUP BY ALL"
    assert cut(query) == {
        "a_b": "SELECT struct(`a`.*) AS `a`, `id`, `y` FROM a JOIN b USING (id)",
        "": "SELECT id, a.*, max(y) FROM `P.a_b` GROUP BY ALL",
    }


@pytest.mark.parametrize(
    ("query", "select"),
    [
        (f"SELECT *, 2 * b.y AS z {COMMA} GROUP BY ALL", "SELECT `a`.*, `b`.*, 2 * b.y AS z"),
        (
            "SELECT DISTINCT * FROM a FULL JOIN b USING (id) LATERAL VIEW explode(a.l) v AS x",
            "SELECT DISTINCT `id`, `a`.* EXCEPT (`id`), `b`.* EXCEPT (`id`), `v`.*",
        ),
        (
            "SELECT * FROM (SELECT id FROM a) JOIN b ON a.id = b.id LEFT SEMI JOIN c ON c.i = b.i",
            "SELECT `_0`.*, `b`.*",
        ),
    ],
)
def test_all_columns_of_what_stages_join_are_those_of_each_table(query: str, select: str) -> None:
    assert cut(query)[""].startswith(f"{select} FROM `P.")


def test_each_join_but_the_last_one_is_a_stage() -> None:
    query = (
        "SELECT a.x, d.y FROM a JOIN b ON a.id = b.id JOIN lookup l ON l.k = b.k "
        "LEFT JOIN c ON c.id = a.id AND c.z > l.z JOIN d USING (id) WHERE a.x > 1 OR d.y IS NULL"
    )
    assert cut(query, "lookup") == {
        "a_b_l": "SELECT struct(`a`.`id`, `a`.`x`) AS `a`, struct(`l`.`z`) AS `l`, `id` "
        "FROM a JOIN b ON a.id = b.id JOIN lookup l ON l.k = b.k",
        "a_b_l_c": "SELECT struct(`a`.`x`) AS `a`, `id` FROM `P.a_b_l` "
        "LEFT JOIN c ON c.id = a.id AND c.z > l.z",
        "": "SELECT a.x, d.y FROM `P.a_b_l_c` JOIN d USING (id) WHERE a.x > 1 OR d.y IS NULL",
    }


def test_what_where_demands_is_a_condition_of_the_first_join_that_has_all_of_its_tables() -> None:
    query = (
        "WITH big AS (SELECT * FROM a WHERE x > 1) SELECT b.y FROM big, b, c WHERE big.id = b.id "
        "AND b.t BETWEEN 1 AND 2 AND CASE WHEN big.u AND b.u THEN c.u END AND (b.k = c.k OR c.v)"
    )
    assert cut(query) == {
        "big_b": "WITH big AS (SELECT * FROM a WHERE x > 1) SELECT struct(`big`.`u`) AS "
        "`big`, struct(`b`.`k`, `b`.`u`, `b`.`y`) AS `b` FROM big, b "
        "WHERE big.id = b.id AND b.t BETWEEN 1 AND 2",
        "": "SELECT b.y FROM `P.big_b` , c "
        "WHERE CASE WHEN big.u AND b.u THEN c.u END AND (b.k = c.k OR c.v)",
    }


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            f"SELECT * EXCEPT (x) {COMMA} GROUP BY ALL",
            r"cannot have \*: write a\.\*, b\.\*, or",
        ),
        (
            "SELECT * FROM a JOIN b USING (id) JOIN c USING (x)",
            r"cannot have \*: write a\.\*, b\.\*, c\.\*, or the columns",
        ),
        (
            "SELECT a.x FROM a JOIN b ON a.id = b.id LEFT JOIN (c JOIN d ON c.x = d.x) ON true",
            r"LEFT JOIN \(…\): put the join in these parentheses into a subquery",
        ),
        ("SELECT x FROM a SEMI JOIN (b JOIN c ON true) ON true", r"SEMI JOIN \(…\): put the join"),
        (
            "SELECT x FROM a JOIN b ON a.id = b.id JOIN c ON c.id = b.id",
            'which of them has "x": write the name of the table',
        ),
        (
            "SELECT upper(a.x) AS x, count(*) FROM a JOIN b ON a.id = b.id GROUP BY x",
            '"x" may be a column of what is joined, or what SELECT calls so',
        ),
        (
            "SELECT a.x, count(*) FROM a JOIN b ON a.id = b.id LATERAL VIEW explode(b.l) "
            "GROUP BY a.x",
            "name its columns",
        ),
    ],
)
def test_refused_joins_in_a_select(query: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        cut(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.x FROM a JOIN b ON a.id = b.id",
        "SELECT i.x, count(*) FROM input i JOIN lookup l ON l.k = i.k GROUP BY i.x",
    ],
)
def test_other_joins_stay_where_they_are(query: str) -> None:
    assert cut(query, "lookup") == {"": query}
