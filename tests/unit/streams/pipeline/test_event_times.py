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
