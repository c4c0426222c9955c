"""Queries that aggregate the updates of another query: as a table, as records, or not at all."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.pipelines.links import links
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import ArcKind, OnError
from kafka_pipeline.common.pipelines.specs import SqlSpec
from tests.unit.streams.pipeline.loading import load, problems_in

HIGHEST = (
    "SELECT auction AS key, category, max(price) AS price FROM input GROUP BY auction, category"
)
MEAN = "SELECT category AS key, avg(price) AS price FROM input GROUP BY category"
TOP = (
    "SELECT concat(category, place) AS key, price FROM (SELECT *, row_number() OVER (PARTITION BY "
    "category ORDER BY price DESC) AS place FROM input) WHERE place <= 3"
)
HOURLY = HIGHEST + ", window(timestamp, '1 hour')"
SCHEMA = "format: json, schema: 'auction STRING, category STRING, price DOUBLE, n BIGINT'"


def chain(first: str, second: str, *, closes: str = "", between: str = "") -> str:
    """Return a pipeline in which the results of one query are the records of another one."""
    target = "Between" if between else "Second"
    return f"""
processors:
- {{id: First, type: sql, query: "{first}", {SCHEMA}, to: [{target}]{closes}}}
- {{id: Second, type: sql, query: "{second}", {SCHEMA}, to: [sink]}}
{between}
"""


def changelogs(pipeline: Pipeline) -> list[str]:
    """Return the ids of the processors that read upserts, without those that merge rows only."""
    return [
        each.id
        for each in pipeline.processors
        if isinstance(each.spec, SqlSpec) and each.spec.parameters.get("reads") == "upserts"
    ]


KEYED_MEAN = MEAN.replace("category AS key", "concat(category, «».start) AS key")
IN_WINDOWS = KEYED_MEAN.replace("«»", "window") + ", window(timestamp, '1 hour')"
AS_TABLES = {
    "a mean in windows, which a row may leave": (HIGHEST, IN_WINDOWS),
    "the highest of rows with one time, which changes": (
        HIGHEST,
        "SELECT string(timestamp) AS key, max(price) AS price FROM input GROUP BY timestamp",
    ),
    "the mean of highest prices": (HIGHEST, MEAN),
    "a count of highest prices": (HIGHEST, MEAN.replace("avg(price)", "count(*)")),
    "windows that give updates": (
        HOURLY.replace("auction AS key", "concat(auction, category, window.start) AS key"),
        MEAN,
    ),
    "the highest of sessions, which are deleted when they grow": (
        HIGHEST.replace("auction AS key", "concat(auction, category, session_window.start) AS key")
        + ", session_window(timestamp, '1 minute')",
        MEAN.replace("avg", "max"),
    ),
    "the lowest of highest prices": (HIGHEST, MEAN.replace("avg", "min")),
    "what a condition may take back": (
        HIGHEST.replace("auction AS key", "concat_ws('|', auction, category) AS key")
        + " HAVING avg(price) < 5",
        MEAN,
    ),
    "groups by what is updated": (
        HIGHEST,
        "SELECT price AS key, sum(n) AS n FROM input GROUP BY 1",
    ),
    "best rows": (TOP, MEAN),
    "best rows of highest prices": (HIGHEST, TOP),
    "different categories of highest prices": (
        HIGHEST,
        "SELECT DISTINCT category AS key FROM input",
    ),
    "the best row": (
        TOP.replace("concat(category, place)", "category").replace(
            "place <= 3", "place = 1 AND category > 'a'"
        ),
        MEAN,
    ),
}


@pytest.mark.parametrize(("first", "second"), AS_TABLES.values(), ids=AS_TABLES)
def test_an_aggregate_of_updates_reads_the_newest_of_each_key(first: str, second: str) -> None:
    pipeline = load(chain(first, second))
    assert changelogs(pipeline) == ["Second-rows"]
    stores = pipeline.processor("Second-rows").stores
    assert [store.name for store in stores] == ["changelog"]
    assert all(store.spreading.rule == "key" for store in stores)


def test_a_changelog_whose_groups_have_its_keys_has_one_processor() -> None:
    pipeline = load(chain(HIGHEST, "SELECT key, sum(n) AS n FROM input GROUP BY key"))
    assert changelogs(pipeline) == ["Second"]
    names = {store.name for store in pipeline.processor("Second").stores}
    assert names == {"changelog", "groups", "shape"}


def test_best_rows_of_a_changelog_need_all_rows_of_their_groups() -> None:
    pipeline = load(chain(HIGHEST, TOP))
    names = {store.name for store in pipeline.processor("Second").stores}
    assert names == {"groups", "values", "shape"}


@pytest.mark.parametrize("function", ["min(price)", "max_by(n, price)", "count(DISTINCT price)"])
def test_what_is_no_sum_of_a_changelog_needs_all_values(function: str) -> None:
    pipeline = load(chain(HIGHEST, MEAN.replace("avg(price)", function)))
    stores = {store.name: store.spreading for store in pipeline.processor("Second").stores}
    assert stores.keys() == {"groups", "values", "shape"}
    assert stores["values"].rule == "key"
    assert stores["values"].has_length
    text = chain(HIGHEST, "SELECT key, min(price) AS price FROM input GROUP BY key")
    names = {store.name for store in load(text).processor("Second").stores}
    assert names == {"changelog", "groups", "values", "shape"}


@pytest.mark.parametrize("on_error", ["skip", "dead_letter", "{dead_letter: all}"])
def test_groups_of_a_changelog_reject_nothing_behind_their_topic(on_error: str) -> None:
    """The processor in front keeps each row that it sends, and takes it out again later."""
    text = chain(HIGHEST, MEAN, closes=f", on_error: {on_error}")
    text = text.replace("to: [sink]}", f"to: [sink], on_error: {on_error}}}")
    pipeline = load(text)
    found = {each.id: each.on_error is OnError.FAIL for each in pipeline.processors}
    assert found == {"First-rows": False, "First": False, "Second-rows": False, "Second": True}


REFUSED = {
    "different rows of updates without a key": (
        HIGHEST.replace("auction AS key, ", ""),
        "SELECT DISTINCT category AS key FROM input",
        'First" gives no column key',
    ),
    "no key": (HIGHEST.replace("auction AS key, ", ""), MEAN, 'First" gives no column key'),
    "a key that changes": (
        HIGHEST.replace("auction AS key", "max(price) AS key"),
        MEAN,
        "a key that is made of aggregates",
    ),
    "windows with one key": (HOURLY, MEAN, "groups by WINDOW(timestamp, '1 hour'), which its key"),
    "windows of a table function with one key": (
        HIGHEST.replace(
            "input", "TABLE(TUMBLE(TABLE input, DESCRIPTOR(timestamp), INTERVAL '1' HOUR))"
        )
        + ", window_start, window_end",
        MEAN,
        "groups by tumble_window, which its key",
    ),
    "several best rows with one key": (
        TOP.replace("concat(category, place)", "category"),
        MEAN,
        "gives several rows for one key",
    ),
    "best rows with a key of the rows": (
        TOP.replace("concat(category, place)", "concat(category, auction)"),
        MEAN,
        "gives a key that is made of columns of the rows",
    ),
    "one of some best rows": (
        TOP.replace("concat(category, place)", "category").replace(
            "place <= 3", "place <= 3 AND (place = 1 OR price > 5)"
        ),
        MEAN,
        "gives several rows for one key",
    ),
    "grouping sets": (
        HIGHEST.replace("GROUP BY auction, category", "GROUP BY CUBE(auction, category)"),
        MEAN,
        "groups by sets of columns",
    ),
}


@pytest.mark.parametrize(("first", "second", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_aggregate_of_updates_is_refused(first: str, second: str, reason: str) -> None:
    (problem,) = problems_in(chain(first, second))
    assert '"Second": its records are updates of "First"' in problem
    assert reason in problem
    assert "emit: on_close" in problem


@pytest.mark.parametrize(
    ("second", "keys", "reason"),
    [
        (
            KEYED_MEAN.replace("«»", "session_window") + ", session_window(timestamp, '1 minute')",
            "to: [sink]",
            "Rows cannot be taken out of sessions, which merge: group by window(…)",
        ),
        (
            IN_WINDOWS.replace("window(timestamp, '1 hour')", "calendar_window(timestamp, '1 day', "
                "'Europe/Berlin')"),
            "to: [sink]",
            "group by a day of the zone",
        ),
        (IN_WINDOWS, "to: [sink], emit: on_close, grace: 1 min", "write emit: on_update"),
        (IN_WINDOWS, "to: [sink], late_to: late", "leave late_to out"),
    ],
)  # fmt: skip
def test_windows_that_a_row_cannot_leave_are_refused(second: str, keys: str, reason: str) -> None:
    text = chain(HIGHEST, second).replace("to: [sink]", keys)
    (problem,) = problems_in(f"sinks: {{late: late}}{text}")
    assert '"Second": its records are updates of "First", which replace former ones' in problem
    assert reason in problem
    assert "emit: on_close" in problem


def test_only_the_query_is_refused_that_gives_a_wrong_key() -> None:
    (problem,) = problems_in(chain(HIGHEST + " HAVING avg(price) < 5", MEAN))
    assert '"First": the query groups by category' in problem


def test_a_lookup_table_is_refused_behind_updates() -> None:
    text = chain(HIGHEST, "SELECT category AS key, count(*) AS n FROM input GROUP BY category")
    second = "to: [sink]}"
    tables = "tables: {names: {topic: names, schema: 'a STRING', global: true}}, "
    text = text.replace(second, tables + second).replace(
        "\nprocessors", "sources: {names: n}\nprocessors", 1
    )
    (problem,) = problems_in(text)
    assert 'join the table in a query without GROUP BY before "Second"' in problem


DISTINCT = "SELECT auction AS key, category FROM (SELECT DISTINCT auction, category FROM input)"

AS_RECORDS = {
    "rows without duplicates": (DISTINCT, MEAN.replace("avg(price)", "count(*)")),
    "the highest of the highest": (HIGHEST, MEAN.replace("avg", "max")),
    "the highest of a number": (
        HIGHEST.replace("max(price) AS price", "count(*) AS n"),
        "SELECT category AS key, max(cast(n AS INT)) AS n FROM input GROUP BY category",
    ),
    "the lowest of the lowest": (HIGHEST.replace("max", "min"), MEAN.replace("avg", "min")),
    "no groups": (HIGHEST, "SELECT key, value FROM input"),
    "groups of records": ("SELECT key, value FROM input", MEAN),
}


@pytest.mark.parametrize(("first", "second"), AS_RECORDS.values(), ids=AS_RECORDS)
def test_what_updates_do_not_harm_reads_them_as_records(first: str, second: str) -> None:
    assert changelogs(load(chain(first, second))) == []


def test_results_on_close_are_records() -> None:
    assert changelogs(load(chain(HOURLY, MEAN, closes=", emit: on_close, grace: 0 s"))) == []


PASSES = '- {{id: Between, type: sql, query: "{query}", to: [Second]}}'


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("- {id: Between, type: forward, to: [Second]}", ["Second-rows"]),
        (PASSES.format(query="SELECT * FROM input"), ["Second-rows", "Between"]),
        (
            PASSES.format(query="SELECT key, value FROM input WHERE key > 'a'"),
            ["Second-rows", "Between"],
        ),
    ],
)
def test_updates_pass_through_what_has_no_groups(between: str, found: list[str]) -> None:
    assert sorted(changelogs(load(chain(HIGHEST, MEAN, between=between)))) == sorted(found)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT value FROM input", "gives no column key"),
        ("SELECT upper(key) AS key, value FROM input", "gives another key"),
        (
            "SELECT key, explode(split(value, ',')) AS value FROM input",
            "gives several rows for one key",
        ),
        ("SELECT key, inline_outer(value) FROM input", "gives several rows for one key"),
        (
            "SELECT key, v FROM input UNPIVOT (v FOR c IN (price, n))",
            "gives several rows for one key",
        ),
    ],
)
def test_what_has_no_groups_must_keep_the_key(query: str, reason: str) -> None:
    between = PASSES.format(query=query)
    (problem,) = problems_in(chain(HIGHEST, MEAN, between=between))
    assert f'"Between" {reason}' in problem


def test_a_query_in_between_may_turn_values_round() -> None:
    highest = MEAN.replace("avg", "max")
    forward = "- {id: Between, type: forward, to: [Second]}"
    assert changelogs(load(chain(HIGHEST, highest, between=forward))) == []
    query = PASSES.format(query="SELECT * FROM input")
    assert "Second-rows" in changelogs(load(chain(HIGHEST, highest, between=query)))


def test_a_maximum_of_what_reads_updates_itself_is_one_over_a_table() -> None:
    """A count of groups shrinks when one of them is gone."""
    counts = MEAN.replace("avg(price) AS price", "count(*) AS n")
    text = f"""
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [Second]}}
- {{id: Second, type: sql, query: "{counts}", {SCHEMA}, to: [Third]}}
- {{id: Third, type: sql, query: "SELECT key, max(n) AS n FROM input GROUP BY key", {SCHEMA},
   to: [sink]}}
"""
    assert changelogs(load(text)) == ["Second-rows", "Third"]


def test_updates_come_through_a_topic_too() -> None:
    text = f"""
sources: {{read: prices}}
sinks: {{written: prices}}
processors:
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [written]}}
- {{id: Second, type: sql, query: "{MEAN}", {SCHEMA}, from: [read], to: [sink]}}
"""
    assert changelogs(load(text)) == ["Second-rows"]


def test_updates_that_come_back_by_a_topic_are_updates_for_all_who_read_them() -> None:
    text = f"""
sources: {{read: {{topic: prices, feedback: true}}}}
sinks: {{written: prices}}
processors:
- {{id: Second, type: sql, query: "{MEAN}", {SCHEMA}, to: [sink]}}
- {{id: Back, type: forward, from: [read, source], to: [First, Third]}}
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [written, Second]}}
- {{id: Third, type: sql, query: "{MEAN}", {SCHEMA}, to: [sink]}}
"""
    (problem,) = problems_in(text)
    assert '"Third": its records are updates of "First"' in problem


def test_different_rows_of_upserts_are_upserts() -> None:
    first, second = (
        "SELECT DISTINCT category AS key FROM input",
        "SELECT count(*) AS n, key FROM input",
    )
    text = f"""
sources: {{prices: {{topic: prices, changelog: true}}}}
processors:
- {{id: First, type: sql, query: "{first}", {SCHEMA}, from: [prices], to: [Second]}}
- {{id: Second, type: sql, query: "{second} GROUP BY key", {SCHEMA}, to: [sink]}}
"""
    assert changelogs(load(text)) == ["First-rows", "Second"]
    assert changelogs(load(text.replace(", changelog: true", ""))) == []


def test_a_source_says_that_it_has_upserts() -> None:
    text = f"""
sources: {{prices: {{topic: prices, changelog: true}}, others: other_prices}}
processors:
- {{id: Second, type: sql, query: "{MEAN}", {SCHEMA}, from: [prices], to: [sink]}}
"""
    assert changelogs(load(text)) == ["Second-rows"]
    assert changelogs(load(text.replace(", changelog: true", ""))) == []
    (problem,) = problems_in(text.replace("from: [prices]", "from: [prices, others]"))
    assert '"Second" reads more than one input' in problem


def test_groups_of_a_dataframe_over_updates_are_refused() -> None:
    text = f"""
processors:
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [Second]}}
- {{id: Second, type: dataframe, function: "shop:f", group_by: {{}}, {SCHEMA},
   to: [sink]}}
"""
    (problem,) = problems_in(text)
    assert 'it reads updates of "First", and group_by of a function would count each of them' in (
        problem
    )


COUNTER = "- {id: Counter, type: count, to: [sink]}"
BEFORE_A_COUNT = {
    "a query": f"""
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [Counter]}}
{COUNTER}
""",
    "what passes them on": f"""
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [Between]}}
- {{id: Between, type: forward, to: [Counter]}}
{COUNTER}
""",
    "a source": f"""
sources: {{First: {{topic: prices, changelog: true}}}}
processors:
{COUNTER.replace("to:", "from: [First], to:")}
""",
}


@pytest.mark.parametrize("text", BEFORE_A_COUNT.values(), ids=BEFORE_A_COUNT)
def test_a_count_of_updates_is_refused(text: str) -> None:
    (problem,) = problems_in(text)
    assert (
        '"Counter": it reads updates of "First", and type: count would count each of them as one '
        "more record. Group them in a query of type: sql"
    ) in problem


def test_a_count_reads_groups_that_have_closed() -> None:
    first = f"""
- {{id: First, type: sql, query: "{HOURLY}", {SCHEMA}, emit: on_close, grace: 0 s, to: [Counter]}}
"""
    assert changelogs(load(first + COUNTER)) == []


def test_a_join_with_bounds_of_time_of_updates_is_refused() -> None:
    text = f"""
sources: {{prices: prices}}
processors:
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, from: [source], to: [Paid]}}
- id: Paid
  type: sql
  from: [prices]
  {SCHEMA.replace(", schema", chr(10) + "  schema")}
  query: >
    SELECT f.key, f.price FROM First f JOIN prices p ON f.key = p.key
    AND p.timestamp BETWEEN f.timestamp AND f.timestamp + INTERVAL 1 HOUR
  to: [sink]
"""
    (problem,) = problems_in(text)
    assert 'it reads updates of "First", and a join with bounds of time would give' in problem
    assert "Say how long rows are kept, with ttl: none" in problem


def test_a_table_that_only_the_inner_query_joins_is_no_harm() -> None:
    query = (
        "SELECT category AS key, avg(c) AS c FROM (SELECT auction, category, count(*) AS c FROM "
        "input JOIN names USING (auction) GROUP BY auction, category) GROUP BY category"
    )
    table = "{names: {topic: names, schema: 'auction STRING', global: true}}"
    pipeline = load(f"""
sources: {{names: n}}
processors:
- {{id: Mean, type: sql, query: "{query}", {SCHEMA}, tables: {table}, to: [sink]}}
""")
    assert changelogs(pipeline) == ["Mean-rows"]


def kinds(pipeline: Pipeline) -> dict[tuple[str | None, str | None], ArcKind]:
    """Return the kinds of arcs by their writers and readers, without those of plain records."""
    found = {(link.writer, link.reader): link.kind for link in links(pipeline)}
    return {ends: kind for ends, kind in found.items() if kind is not ArcKind.RECORDS}


def test_arcs_say_which_results_replace_others() -> None:
    """Rows in an internal topic, late records and what has no groups are plain records."""
    text = f"""
sources: {{table: {{topic: t, changelog: true}}, again: first}}
sinks: {{late: late, first: first}}
processors:
- {{id: Keyless, type: sql, query: "SELECT category, max(price) AS m FROM input GROUP BY category",
   {SCHEMA}, to: [Passed]}}
- {{id: Passed, type: forward, to: [sink]}}
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [Second, first]}}
- {{id: Second, type: sql, query: "{MEAN}", {SCHEMA}, to: [sink]}}
- {{id: Windows, type: sql, {SCHEMA}, late_to: late, to: [sink],
   query: "{HOURLY}"}}
- {{id: Closed, type: sql, {SCHEMA}, emit: on_close, grace: 0 s, to: [sink],
   query: "{HOURLY}"}}
- {{id: Read, type: forward, from: [table], to: [sink]}}
- {{id: Again, type: forward, from: [again], to: [sink]}}
"""
    assert kinds(load(text)) == {
        ("Keyless", "Passed"): ArcKind.UPDATES,
        ("Passed", None): ArcKind.UPDATES,
        ("First", "Second-rows"): ArcKind.UPSERTS,
        ("First", None): ArcKind.UPSERTS,
        (None, "Again"): ArcKind.UPSERTS,
        ("Second", None): ArcKind.UPSERTS,
        ("Windows", None): ArcKind.UPDATES,
        (None, "Read"): ArcKind.UPSERTS,
        ("Read", None): ArcKind.UPSERTS,
        ("Again", None): ArcKind.UPSERTS,
    }
