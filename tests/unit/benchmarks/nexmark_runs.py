"""The Nexmark queries on a test driver, held against the oracle."""

from __future__ import annotations

from pathlib import Path

from benchmarks.nexmark.catalog import MODULES, Query
from benchmarks.nexmark.generator import (
    TOPICS,
    Settings,
    chunks,
    rows,
    write_side_input,
)
from benchmarks.nexmark.oracle import Oracle, Results
from kafka_pipeline.common.kafka.bulk import TimedRow
from kafka_pipeline.streams.record import Record
from kafka_pipeline.testing import TopologyTestDriver
from tests.in_process import invoke
from tests.small_config import SMALL_CONFIG

ROOT = Path(__file__).parents[3]
IN_ORDER = Settings(events=2_500, rate=100, start_ms=1_768_521_590_000)
"""From 23:59:50 on, for 25 s, so that there are two days."""
OUT_OF_ORDER = Settings(events=2_500, rate=100, start_ms=1_768_521_590_000, seed=1, disorder=200)
_PART_MS = 5_000


def config_of(folder: Path) -> Path:
    """Write config.yaml, and the file that q13 reads, into a folder."""
    write_side_input(folder)
    config = folder / "config.yaml"
    config.write_text(
        f'{SMALL_CONFIG}modules: [{", ".join(MODULES)}]\npython_path: ["{ROOT}"]\n', "utf-8"
    )
    return config


def require_valid(query: Query, folder: Path) -> None:
    """Assert that `pipeline validate` accepts a query."""
    result = invoke("validate", config_of(folder), query.pipeline)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("ok: ")


def require_right_results(query: Query, settings: Settings, folder: Path) -> int:
    """Run a query, and return how many rows its result has.

    Raises `WrongOutputError` if they differ from those of the oracle.
    """
    oracle = Oracle()
    events: dict[str, list[TimedRow]] = {topic: [] for topic in TOPICS}
    for chunk in chunks(settings):
        oracle.add(chunk)
        for topic in TOPICS:
            events[topic].extend(rows(topic, chunk[topic]))
    results = Results(query, query.is_table)
    with TopologyTestDriver.of_pipeline(config_of(folder), query.pipeline) as driver:
        inputs = {topic: driver.create_input_topic(topic) for topic in query.topics}
        for part in sorted({time // _PART_MS for all_ in events.values() for *_, time in all_}):
            # What the first topic of a query looks up comes before it.
            for topic in reversed(query.topics):
                inputs[topic].pipe_batch(
                    Record(*event) for event in events[topic] if event[2] // _PART_MS == part
                )
        found = driver.create_output_topic("out").read_records()
    results.add((record.key, record.value) for record in found)
    answer = oracle.answer(query)
    results.require(answer)
    oracle.close()
    return answer.rows.total()
