"""The events of Nexmark, their right results, and the queries that need no Spark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.nexmark import flink
from benchmarks.nexmark.__main__ import parse
from benchmarks.nexmark.catalog import QUERIES, Query
from benchmarks.nexmark.generator import (
    AUCTION,
    BID,
    CLOSING_AFTER_MS,
    CLOSING_EVENTS,
    PERSON,
    TOPICS,
    Settings,
    chunks,
    rows,
)
from benchmarks.nexmark.oracle import ANSWERS, Answer, Oracle, Results
from benchmarks.nexmark.summary import summary
from benchmarks.records import WrongOutputError
from tests.unit.benchmarks.nexmark_runs import (
    IN_ORDER,
    OUT_OF_ORDER,
    require_right_results,
    require_valid,
)

SPARKLESS = [query for query in QUERIES.values() if (query.pipeline.with_suffix(".py")).exists()]


def name(query: Query) -> str:
    return query.name


def test_events_have_the_official_shares_and_hot_ids() -> None:
    events, _closing = chunks(Settings(events=50_000))
    counts = {topic: events[topic].num_rows for topic in TOPICS}
    assert counts == {PERSON: 1_000, AUCTION: 3_000, BID: 46_000}
    auctions, bidders = (events[BID].column(name).to_numpy() for name in ("auction", "bidder"))
    sellers = events[AUCTION].column("seller").to_numpy()
    # Every hundredth id is hot; others hit one in a hundred times.
    assert np.mean((auctions - 1_000) % 100 == 0) == pytest.approx(0.505, abs=0.01)
    assert np.mean((bidders - 2_000) % 100 == 1) == pytest.approx(0.7525, abs=0.01)
    assert np.mean((sellers - 1_000) % 100 == 0) == pytest.approx(0.7525, abs=0.03)
    prices = np.log10(events[BID].column("price").to_numpy())
    assert (prices.min(), prices.max()) == (pytest.approx(2, abs=0.1), pytest.approx(8, abs=0.1))
    urls = events[BID].column("url").to_pylist()
    assert np.mean(["&channel_id=" in url for url in urls]) == pytest.approx(0.45, abs=0.02)


@pytest.mark.parametrize(("disorder", "most_ms"), [(1, 0), (100, 10), (1_000, 100)])
def test_events_are_as_far_out_of_order_as_asked(disorder: int, most_ms: int) -> None:
    events, _closing = chunks(Settings(events=20_000, disorder=disorder))
    times, places = (
        np.concatenate([events[topic].column(name).to_numpy() for topic in TOPICS])
        for name in ("dateTime", "arrival")
    )
    times = times[np.argsort(places)]
    behind = (np.maximum.accumulate(times) - times).max()
    assert most_ms * 0.9 <= behind <= most_ms


def test_seed_decides_all_events_and_their_records_are_json() -> None:
    def records(seed: int) -> list[tuple[bytes | None, bytes | None, int]]:
        found = chunks(Settings(events=200, seed=seed))
        return [row for events in found for topic in TOPICS for row in rows(topic, events[topic])]

    first = records(1)
    assert first == records(1)
    assert first != records(2)
    assert len(first) == 200 + 3 * CLOSING_EVENTS
    for key, value, time in first:
        event = json.loads(value or b"")
        assert key == str(event.get("id", event.get("auction"))).encode()
        assert time == event["dateTime"]


@pytest.mark.parametrize("query", SPARKLESS, ids=name)
@pytest.mark.parametrize(
    "settings",
    [IN_ORDER, pytest.param(OUT_OF_ORDER, marks=pytest.mark.long)],
    ids=["in-order", "out-of-order"],
)
def test_query_in_the_dsl_has_the_results_of_the_oracle(
    query: Query, settings: Settings, tmp_path: Path
) -> None:
    if query.needs_order and settings is OUT_OF_ORDER:
        pytest.skip("bids look up auctions, which must have arrived")
    require_valid(query, tmp_path)
    assert require_right_results(query, settings, tmp_path) > 0


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([{"auction": 1, "price": 5}], "1 rows are missing, such as {'auction': 2, 'price': 7}"),
        (
            [{"auction": 1, "price": 5}, {"auction": 2, "price": 7}, {"auction": 2, "price": 7}],
            "1 rows are wrong, such as {'auction': 2, 'price': 7}",
        ),
        ([{"auction": 1, "price": 5}, {"auction": 2, "price": 7, "x": 1}], "'all columns'"),
    ],
    ids=["missing", "twice", "other columns"],
)
def test_results_that_differ_are_shown(values: list[dict[str, int]], problem: str) -> None:
    query = QUERIES["q2"]
    results = Results(query, is_table=False)
    results.add((b"k", json.dumps(value).encode()) for value in values)
    answer = Answer(("auction", "price"), Counter([(1, 5), (2, 7)]))
    with pytest.raises(WrongOutputError) as caught:
        results.require(answer)
    assert problem in str(caught.value)


def test_last_value_of_each_key_counts_in_a_table() -> None:
    results = Results(QUERIES["q17"], is_table=True)
    results.add([(b"a", b'{"n": 1}'), (b"b", b'{"n": 2}'), (b"a", b'{"n": 3}'), (b"b", None)])
    results.require(Answer(("n",), Counter([(3,)])))


@pytest.mark.parametrize(
    ("name", "column"), [("q7", "dateTime"), ("q11", "starttime")], ids=["q7", "q11"]
)
def test_windows_of_the_closing_events_can_be_left_out(name: str, column: str) -> None:
    oracle = Oracle()
    for events in chunks(Settings(events=100)):
        oracle.add(events)
    last_ms = oracle.last_ms
    assert last_ms > Settings(events=100).start_ms + CLOSING_AFTER_MS
    values = [json.dumps({column: time}).encode() for time in (last_ms - 1, last_ms)]
    answer = Answer((column,), Counter([(last_ms - 1,)]))
    results = Results(QUERIES[name], is_table=True, until_ms=last_ms)
    results.add((value, value) for value in values)
    results.require(answer)
    oracle.close()


def test_summary_has_a_row_for_each_query_and_says_what_failed_and_what_cannot_be_run() -> None:
    ours = {"records_per_s": 30_000.0, "cpu_s_per_million": 40.0}
    text = summary(
        ["q1", "q6"],
        {"this engine": {"q1", "q6"}, "a peer": {"q1"}, "another": {"q1"}},
        {
            ("q1", "this engine"): [ours],
            ("q6", "this engine"): [ours],
            ("q1", "a peer"): [{**ours, "records_per_s": 20_000.0}],
        },
    )
    head, _, *lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()
    ]
    assert head[:5] == ["query", "this engine: events/s", "CPU s per million", *head[3:5]]
    assert head[3::3] == ["a peer: events/s", "another: events/s"]
    assert lines == [
        ["q1", "30,000", "40.0", "20,000", "40.0", "1.50", "failed", "-", "-"],
        ["q6", "30,000", "40.0", "-", "-", "-", "-", "-", "-"],
    ]


def test_every_query_has_an_answer_and_flink_has_all_but_two() -> None:
    assert QUERIES.keys() == ANSWERS.keys()
    assert QUERIES.keys() - flink.QUERIES.keys() == {"q6", "q13"}
    assert flink.QUERIES.keys() <= QUERIES.keys()


def test_answer_follows_the_events() -> None:
    answers = []
    for seed in (1, 2):
        oracle = Oracle()
        for events in chunks(Settings(events=3_000, seed=seed)):
            oracle.add(events)
        answers.append({query.name: oracle.answer(query).rows for query in QUERIES.values()})
        oracle.close()
    # q23 needs more events than these: see tests/integration/test_nexmark.py.
    assert [name for name in QUERIES if answers[0][name] == answers[1][name]] == ["q23"]


def test_disorder_is_refused_for_queries_that_need_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parse(["--disorder", "100", "--query", "q5"]).disorder == 100
    with pytest.raises(SystemExit):
        parse(["--disorder", "100", "--query", "q6", "--query", "q5"])
    assert "q6 look" in capsys.readouterr().err


def test_peers_are_not_killed(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--kill", "--peer", "none"]).kill
    with pytest.raises(SystemExit):
        parse(["--kill", "--peer", "flink"])
    assert "only this engine is killed" in capsys.readouterr().err
