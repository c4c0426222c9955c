"""Columns that a SELECT over several inputs names without their table, as text."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.sql.query_stages import cut_query
from kafka_pipeline.streams.sql.schema_columns import columns_of_schema
from kafka_pipeline.streams.sql.spec import QueryError

SCHEMAS = {
    "bids": "auction INT, bidder INT, price INT",
    "auctions": "id INT, seller INT, item STRUCT<name: STRING, size: INT>",
    "people": "pid INT, name STRING, city STRING",
}
READ = "bids b JOIN auctions ON auction = id JOIN people ON seller = pid"
FIRST = "SELECT struct({}) FROM bids b JOIN auctions ON `b`.auction = `auctions`.id"


def columns(name: str) -> frozenset[str] | None:
    if name not in SCHEMAS:
        return None
    return frozenset({"key", "timestamp"}) | columns_of_schema(SCHEMAS[name])


def cut(query: str) -> dict[str, str]:
    return {stage.name: stage.query for stage in cut_query(query, (), "P", columns)}


def refusal(query: str) -> str:
    with pytest.raises(QueryError) as caught:
        cut(query)
    return str(caught.value)


def test_each_gets_the_table_that_has_it() -> None:
    query = f"SELECT City, Item.name, price * 2 AS twice FROM {READ} WHERE `bidder` = 1"
    assert cut(query) == {
        "b_auctions": "SELECT struct(`b`.`bidder`, `b`.`price`) AS `b`, struct(`auctions`.`item`, "
        "`auctions`.`seller`) AS `auctions` FROM bids b JOIN auctions ON `b`.auction = "
        "`auctions`.id",
        "": "SELECT `people`.City, `auctions`.Item.name, `b`.price * 2 AS twice FROM "
        "`P.b_auctions` JOIN people ON `auctions`.seller = `people`.pid WHERE `b`.`bidder` = 1",
    }


def test_conditions_of_joins_by_commas_are_in_the_stages_that_join() -> None:
    query = (
        "WITH near AS (SELECT pid AS p, city FROM people) SELECT city AS key, count(*) AS c FROM "
        "bids, auctions, near WHERE auction = id AND seller = p GROUP BY city"
    )
    found = cut(query)
    assert found["bids_auctions"].endswith("WHERE `bids`.auction = `auctions`.id")
    assert found["bids_auctions_near"].endswith("WHERE `auctions`.seller = `near`.p")


def test_having_reads_columns_and_what_select_calls_something() -> None:
    query = f"SELECT city, count(*) AS n FROM {READ} GROUP BY city HAVING n > 1 AND max(price) > 2"
    assert cut(query)[""].endswith("GROUP BY `people`.city HAVING n > 1 AND max(`b`.price) > 2")


@pytest.mark.parametrize("tables", [READ, "bids JOIN auctions ON auction = id"])
def test_group_by_takes_a_column_before_what_select_calls_so(tables: str) -> None:
    found = cut(f"SELECT abs(id) AS id, abs(price) AS p, count(*) FROM {tables} GROUP BY id, p")
    assert found[""].endswith("GROUP BY `auctions`.id, p")


def test_two_inputs_stay_as_they_were_written() -> None:
    """The state of such a query is kept for its text."""
    query = "SELECT city AS key, sum(n) AS s FROM a JOIN b ON x = y WHERE m > 1 GROUP BY city"
    assert cut(query) == {
        "a_b": "SELECT `city`, `n` FROM a JOIN b ON x = y WHERE m > 1",
        "": "SELECT city AS key, sum(n) AS s FROM `P.a_b` GROUP BY city",
    }


def test_after_a_semi_join_only_the_left_side_is_seen() -> None:
    read = "bids JOIN auctions ON auction = id SEMI JOIN people ON seller = pid AND city = 'x'"
    assert cut(f"SELECT id FROM {read}")[""] == (
        "SELECT `auctions`.id FROM `P.bids_auctions` SEMI JOIN people "
        "ON `auctions`.seller = `people`.pid AND `people`.city = 'x'"
    )
    assert refusal(f"SELECT city FROM {read}") == '"city" is not a column of bids and auctions'


def test_one_that_several_tables_have_is_refused_by_name() -> None:
    assert refusal(f"SELECT key FROM {READ}") == (
        '"key" is a column of b, auctions and people: write the name of the table in front of it, '
        "such as b.key"
    )


def test_one_that_no_table_has_is_refused_by_name() -> None:
    assert refusal(f"SELECT nam FROM {READ}") == (
        '"nam" is not a column of b, auctions and people, did you mean "name"?'
    )


def test_tables_with_unknown_columns_are_named() -> None:
    found = refusal("SELECT city FROM bids, auctions, others WHERE auction = id AND seller = city")
    assert found == (
        'a SELECT that joins more than two inputs says which of them has "city": write the name '
        "of the table in front of it, as the columns of others are not known here"
    )


def test_names_in_except_need_no_table() -> None:
    query = f"SELECT people.* EXCEPT (key, timestamp, pid), id FROM {READ}"
    assert cut(query)[""].startswith(
        "SELECT people.* EXCEPT (key, timestamp, pid), `auctions`.id FROM"
    )


def test_columns_of_a_subquery_stay_its_own() -> None:
    """The lookup table has columns that are called as those of inputs."""
    query = f"SELECT city FROM {READ} WHERE id IN (SELECT id FROM lookup WHERE name = 'x')"
    stages = cut_query(query, ["lookup"], "P", columns)
    assert stages[-1].query.endswith(
        "WHERE `auctions`.id IN (SELECT id FROM lookup WHERE name = 'x')"
    )


def test_next_to_a_table_function_columns_need_their_table() -> None:
    """The tree of such a query has other places than its text."""
    windows = "TABLE(TUMBLE(TABLE people, DESCRIPTOR(timestamp), INTERVAL '1' HOUR)) people"
    read = f"bids JOIN auctions ON bids.auction = auctions.id JOIN {windows} ON seller = people.pid"
    assert refusal(f"SELECT people.city FROM {read}") == (
        'a SELECT that joins more than two inputs says which of them has "seller": write the name '
        "of the table in front of it"
    )
    assert cut(f"SELECT people.city FROM {read.replace(' seller', ' auctions.seller')}")[""]


def test_names_in_a_schema() -> None:
    schema = (
        "Id INT, `the ``n``` STRING COMMENT 'a, b', p DECIMAL(10, 2), s STRUCT<a: INT, b: ARRAY<INT"
        ">>, x: INT NOT NULL"
    )
    assert columns_of_schema(schema) == {"id", "the `n`", "p", "s", "x"}


def test_subqueries_without_an_alias_get_one() -> None:
    query = (
        "SELECT city, count(*) FROM (SELECT * FROM people) JOIN (SELECT seller FROM auctions) ON "
        "seller = pid GROUP BY city"
    )
    assert cut(query)["_0__1"] == (
        "SELECT `city` FROM (SELECT * FROM people) AS `_0` JOIN (SELECT seller FROM auctions) AS "
        "`_1` ON seller = pid"
    )
