"""The example of the flights on a test driver, against pandas; and its comparison itself."""

from __future__ import annotations

import json

import pytest

from examples.flights import answers
from examples.flights.data import Tables, records
from examples.flights.data import read as read_tables
from examples.flights.flights_topology import build
from examples.flights.results import Row, delays_of, enriched_of
from examples.flights.run import INPUTS
from kafka_pipeline.admin.quickstart.flights import fetch_flights
from kafka_pipeline.admin.quickstart.verdict import compare
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.testing import TopologyTestDriver

DAYS = 14


@pytest.fixture(scope="module")
def tables() -> Tables:
    try:
        return read_tables(fetch_flights(), DAYS)
    except UnavailableError as error:
        pytest.skip(f"the flights are not there: {error}")


@pytest.mark.long
@pytest.mark.timeout(240)
def test_two_weeks_give_what_pandas_says(tables: Tables) -> None:
    entries = records(tables)
    in_order = sorted(
        ((entry, topic) for topic in INPUTS for entry in entries[topic]),
        # Of one time, what a flight is joined with comes before the flight.
        key=lambda found: (found[0].timestamp, found[1] == "flights"),
    )
    with TopologyTestDriver(build()) as driver:
        topics = {topic: driver.create_input_topic(topic) for topic in INPUTS}
        for entry, topic in in_order:
            topics[topic].pipe_input(entry.key, entry.value, entry.timestamp)

        def read(topic: str) -> list[Row]:
            found = driver.create_output_topic(topic).read_records()
            return [(record.key, record.value, record.timestamp) for record in found]

        delays, enriched, late = map(read, ("delays", "enriched_flights", "late_flights"))
    of_delays, of_enriched = answers.delays(tables), answers.enriched(tables)
    assert len(of_delays) > 2_000
    assert len(of_enriched) > 12_000
    assert compare("delays", delays_of(delays), of_delays.items()).problems == ()
    assert compare("flights", enriched_of(enriched), of_enriched.items()).problems == ()
    assert late == []


ANSWERS: answers.Answers = {("UA", 0): (2, 1, 5), ("AA", 0): (1, 1, 0)}


def delay(airline: str, start_ms: int, *total: int) -> Row:
    value = dict(zip(("flights", "arrived", "delay"), total, strict=True))
    return airline.encode() + start_ms.to_bytes(8), json.dumps(value).encode(), 0


RIGHT = [delay("UA", 0, 2, 1, 5), delay("AA", 0, 1, 1, 0)]


@pytest.mark.parametrize(
    ("rows", "problems"),
    [
        (RIGHT[::-1], ()),
        (RIGHT[:1], ("delays missing: 1 ((('AA', 0), (1, 1, 0)))",)),
        ([*RIGHT, RIGHT[0]], ("delays too often: 1 ((('UA', 0), (2, 1, 5)))",)),
        (
            [*RIGHT, delay("B6", 0, 1, 0, 0)],
            ("delays not expected: 1 ((('B6', 0), (1, 0, 0)))",),
        ),
        (
            [RIGHT[0], delay("AA", 0, 1, 1, 1)],
            (
                "delays missing: 1 ((('AA', 0), (1, 1, 0)))",
                "delays not expected: 1 ((('AA', 0), (1, 1, 1)))",
            ),
        ),
    ],
)
def test_each_kind_of_mistake_is_found(rows: list[Row], problems: tuple[str, ...]) -> None:
    assert compare("delays", delays_of(rows), ANSWERS.items()).problems == problems
