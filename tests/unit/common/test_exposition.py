"""The page that Prometheus reads."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_pipeline.common.monitoring.exposition import PROCESS_METRICS, Exposition
from kafka_pipeline.common.monitoring.memory import resident_bytes
from kafka_pipeline.common.monitoring.metric import Sample, counter, gauge, histogram
from kafka_pipeline.common.monitoring.times import TimeCounter

READ = counter("read_total", "records read", "task")
LAG = gauge("lag", "records that wait", "task")
STATE = gauge("state", "one of two", "task", "state")
TURNS = histogram("turn_seconds", "how long turns took", "task")


def values(*samples: Sample) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what a reader finds on the page, by name and labels."""
    page, _ = Exposition(lambda: samples).page()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_counters_and_gauges_are_on_the_page() -> None:
    found = values(READ.sample(7, "A_0"), LAG.sample(0.5, "A_0"), READ.sample(1, "A_1"))
    assert found["kafka_pipeline_read_total", (("task", "A_0"),)] == 7
    assert found["kafka_pipeline_read_total", (("task", "A_1"),)] == 1
    assert found["kafka_pipeline_lag", (("task", "A_0"),)] == 0.5


def test_a_histogram_has_buckets_that_include_the_smaller_ones() -> None:
    times = TimeCounter()
    times.add(0.02)
    times.add(60)
    found = values(TURNS.sample(times.times, "A_0"))
    buckets = {
        dict(labels)["le"]: value for (name, labels), value in found.items() if "bucket" in name
    }
    assert (buckets["0.01"], buckets["0.025"], buckets["30.0"], buckets["+Inf"]) == (0, 1, 1, 2)
    assert found["kafka_pipeline_turn_seconds_sum", (("task", "A_0"),)] == pytest.approx(60.02)


def test_one_of_several_states_is_1_and_the_others_are_0() -> None:
    found = values(*STATE.one_of(("UP", "DOWN"), "DOWN", "A_0"))
    assert found["kafka_pipeline_state", (("state", "UP"), ("task", "A_0"))] == 0
    assert found["kafka_pipeline_state", (("state", "DOWN"), ("task", "A_0"))] == 1


def test_series_are_gone_with_what_they_were_for() -> None:
    samples = [LAG.sample(1, "A_0"), LAG.sample(1, "A_1")]
    exposition = Exposition(lambda: samples)
    assert b'task="A_0"' in exposition.page()[0]
    del samples[0]
    page, _ = exposition.page()
    assert b'task="A_0"' not in page
    assert b'task="A_1"' in page


def test_labels_may_have_any_character() -> None:
    odd = 'a"b\\c\nd'
    assert values(LAG.sample(1, odd))["kafka_pipeline_lag", (("task", odd),)] == 1


def test_a_reader_gets_the_format_that_it_asks_for() -> None:
    exposition = Exposition(lambda: [READ.sample(1, "A_0")])
    page, content_type = exposition.page("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")
    assert exposition.page()[1].startswith("text/plain")


@pytest.mark.skipif(not resident_bytes(), reason="this system has no /proc")
def test_the_process_is_on_the_page() -> None:
    found = {name for name, _ in values()}
    assert found == set(PROCESS_METRICS)


def test_samples_of_one_counter_may_have_different_labels() -> None:
    by_reason = counter("user_refused_total", "refused", "task", "reason")
    found = values(
        counter("user_refused_total", "refused", "task").sample(2, "A_0"),
        by_reason.sample(3, "A_0", "late"),
    )
    assert found["kafka_pipeline_user_refused_total", (("task", "A_0"),)] == 2
    assert found["kafka_pipeline_user_refused_total", (("reason", "late"), ("task", "A_0"))] == 3
