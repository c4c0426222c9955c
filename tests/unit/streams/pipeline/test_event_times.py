"""Whose event time a processor goes by, and where the records of each input come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

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


def test_an_answer_waits_for_its_question_and_not_the_other_way_round() -> None:
    text = topology("enriched", "stream: s, table: t, rows: r, out: o")
    found = event_times(load(text, JOB))
    asked = found["W-Found-source"]
    (rows,) = asked.writers["W_Joined-subscriptions-repartition_job"]
    assert rows.processor == "W-Rows-source"
    assert rows.inputs == {"r": 2}
    (answering,) = found["W-Rows-source"].writers["W_Joined-answers-repartition_job"]
    subscriptions, moved = (
        "W_Joined-subscriptions-repartition_job",
        "W_Enriched-by-key-repartition_job",
    )
    assert answering.inputs == {"t": 2, subscriptions: 2, moved: 2}
    assert answering.feedback == (subscriptions,)
    assert answering.internal == {subscriptions: ("W-Rows-source",), moved: ("W-s-source",)}
    answers = set(found["W-Rows-source"].writers)
    assert found["W-Rows-source"].returning_to("W-Rows-source") == answers
    assert not asked.returning_to("W-Found-source")


def test_rows_that_refer_to_rows_of_their_own_table_wait_for_the_answers() -> None:
    found = event_times(load(topology("referring_to_itself", "rows: r, out: o"), JOB))
    ((task, spec),) = found.items()
    (asking,) = spec.writers["W_Referring-subscriptions-repartition_job"]
    (answering,) = spec.writers["W_Referring-answers-repartition_job"]
    assert (asking.processor, answering.processor) == (task, task)
    assert asking.inputs == {"r": 2}
    assert answering.inputs == {"r": 2, "W_Referring-subscriptions-repartition_job": 2}
    assert spec.returning_to(task) == set(spec.writers)


def test_origins_are_the_processors_that_read_sources() -> None:
    text = topology("enriched", "stream: s, table: t, rows: r, out: o")
    found = event_times(load(text, JOB))
    asked = found["W-Found-source"]
    assert asked.origins("W_Enriched-by-key-repartition_job") == {"W-s-source"}
    subscriptions = "W_Joined-subscriptions-repartition_job"
    assert asked.origins(subscriptions) == {"W-Rows-source"}
    asking, answers = found["W-Rows-source"], "W_Joined-answers-repartition_job"
    assert asking.origins(answers) == {"W-Found-source", "W-Rows-source", "W-s-source"}
    assert asking.origins(answers, with_feedback=False) == {"W-Found-source", "W-s-source"}


def test_a_join_of_sources_sees_what_is_under_way_to_it_from_each_of_them() -> None:
    found = event_times(load(topology("paired", "left: l, right: r, out: o, hops: 3"), JOB))
    joining = found["W-Paired-left"]
    assert set(joining.writers) == {
        "W_Paired-left-repartition_job",
        "W_Paired-right-repartition_job",
    }
    assert {topic: of.processor for topic, (of,) in joining.upstream.items()} == {
        "W_Hop1-repartition_job": "W-Hop0",
        "W_Hop0-repartition_job": "W-ReadLeft",
    }
    # Those that have one source know from each other what they have yet to learn.
    assert found["W-Hop1"].writers
    assert not found["W-Hop1"].upstream
    directly = event_times(load(topology("paired", "left: l, right: r, out: o, hops: 1"), JOB))
    assert not any(spec.upstream for spec in directly.values())


def test_rows_of_another_source_wait_for_what_is_under_way_to_them() -> None:
    found = event_times(load(topology("enriched", "stream: s, table: t, rows: r, out: o"), JOB))
    answers = "W_Joined-answers-repartition_job"
    assert set(found["W-Rows-source"].writers) == {answers}
    assert set(found["W-Rows-source"].upstream) == {
        "W_Joined-subscriptions-repartition_job",
        "W_Enriched-by-key-repartition_job",
    }


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


@pytest.mark.parametrize(("history", "expected"), [("", ("names",)), (", history: 1 h", ())])
def test_tables_of_queries_say_how_far_event_time_is_only_with_a_history(
    history: str, expected: tuple[str, ...]
) -> None:
    text = f"""
sources: {{names: names}}
processors:
- {{id: Q, type: sql, from: [source], format: json, schema: "v STRING, ts TIMESTAMP", to: [sink],
   tables: {{names: {{topic: names, schema: "name STRING"{history}}}}},
   query: "SELECT name, count(*) AS n, window.start AS start
           FROM (SELECT names.name, input.ts FROM input JOIN names ON input.v = names.key)
           GROUP BY name, window(ts, '1 hour')"}}
"""
    front, _ = event_times(load(text, JOB)).values()
    assert front.looked_up == expected
