"""Whose event time a processor goes by, and where the records of each input come from."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.pipelines.event_time import event_times
from tests.unit.streams.pipeline.loading import CONFIG, load

MODULE = "tests.user_code.topologies"
JOB = replace(CONFIG, job_name="job")


def topology(builder: str, config: str) -> str:
    return f"- {{id: W, type: topology, builder: '{MODULE}:{builder}', config: {{{config}}}}}"


def test_processors_without_windows_or_joins_need_no_time() -> None:
    assert event_times(load(topology("counted_words", "lines: l, words: w"), JOB)) == {}


def test_only_what_looks_up_rows_waits_for_another_input() -> None:
    text = """
- {id: A, type: forward, to: [P]}
- {id: B, type: forward, to: [P]}
- {id: P, type: "tests.user_code.keepers:Keeper", stores: [{name: s, value: json}], to: [sink]}
"""
    assert event_times(load(text, JOB)) == {}


def test_two_that_answer_each_other_do_not_wait_for_each_other() -> None:
    text = topology("enriched", "stream: s, table: t, rows: r, out: o")
    found = event_times(load(text, JOB))
    asked = found["W-Found-source"]
    (rows,) = asked.writers["W_Joined-subscriptions-repartition_job"]
    assert rows.processor == "W-Rows-source"
    assert rows.inputs == {"r": 2, "W_Joined-answers-repartition_job": 2}
    assert rows.feedback == ("W_Joined-answers-repartition_job",)
    (answering,) = found["W-Rows-source"].writers["W_Joined-answers-repartition_job"]
    assert answering.inputs == {"t": 2, "W_Enriched-by-key-repartition_job": 2}
    assert answering.feedback == ()
    assert answering.internal == {"W_Enriched-by-key-repartition_job": ("W-s-source",)}


def test_origins_are_the_processors_that_read_sources() -> None:
    text = topology("enriched", "stream: s, table: t, rows: r, out: o")
    found = event_times(load(text, JOB))
    asked = found["W-Found-source"]
    assert asked.origins("W_Enriched-by-key-repartition_job") == {"W-s-source"}
    subscriptions = "W_Joined-subscriptions-repartition_job"
    assert asked.origins(subscriptions, with_feedback=False) == {"W-Rows-source"}
    assert asked.origins(subscriptions) == {"W-Rows-source", "W-Found-source", "W-s-source"}
    answers = found["W-Rows-source"].origins("W_Joined-answers-repartition_job")
    assert answers == {"W-Found-source", "W-s-source"}


LOOKUPS = "events: e, names: n, changes: c, tables: t, out: o"


def test_tables_that_are_looked_up_do_not_say_how_far_event_time_is() -> None:
    pipeline = load(topology("counted_after_lookups", LOOKUPS), JOB)
    found = event_times(pipeline)
    counts = "W_ByValue-repartition_job"
    reader = next(each for each in pipeline.processors if "e" in pipeline.in_topics(each))
    assert set(pipeline.in_topics(reader)) == {"e", "n", "t", counts}
    assert set(found[reader.id].looked_up) == {"n", "t", counts}
    # What looks something up still waits for it.
    assert found[reader.id].writers[counts][0].inputs == {"c": 2}
    by_name = "W_ByName-repartition_job"
    counting = next(each for each in found.values() if by_name in each.writers)
    assert [each.inputs for each in counting.writers[by_name]] == [{"e": 2}]
    assert counting.origins(by_name) == {reader.id}


def test_a_table_whose_changes_are_results_says_how_far_event_time_is() -> None:
    pipeline = load(topology("counted_after_lookups", f"{LOOKUPS}, shows_rows: true"), JOB)
    reader = next(each for each in pipeline.processors if "e" in pipeline.in_topics(each))
    looked_up = event_times(pipeline)[reader.id].looked_up
    assert set(looked_up) == {"t", "W_ByValue-repartition_job"}


def test_a_table_with_a_history_says_how_far_event_time_is() -> None:
    pipeline = load(topology("counted_after_lookups", f"{LOOKUPS}, history_ms: 9"), JOB)
    reader = next(each for each in pipeline.processors if "e" in pipeline.in_topics(each))
    looked_up = event_times(pipeline)[reader.id].looked_up
    assert set(looked_up) == {"t", "W_ByValue-repartition_job"}


def test_tables_of_queries_do_not_say_how_far_event_time_is() -> None:
    text = """
sources: {names: names}
processors:
- {id: Q, type: sql, from: [source], format: json, schema: "v STRING, ts TIMESTAMP", to: [sink],
   tables: {names: {topic: names, schema: "name STRING"}},
   query: "SELECT name, count(*) AS n, window.start AS start
           FROM (SELECT names.name, input.ts FROM input JOIN names ON input.v = names.key)
           GROUP BY name, window(ts, '1 hour')"}
"""
    found = event_times(load(text, JOB))
    (front,) = (each for each in found.values() if each.looked_up)
    assert front.looked_up == ("names",)
