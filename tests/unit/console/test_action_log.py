"""Actions of the console are events of the history, at the brokers' time."""

from __future__ import annotations

from kafka_pipeline.console.action_log import ActionLog, action_line
from kafka_pipeline.console.history import MOST_EVENTS
from kafka_pipeline.console.views.snapshot import EventKind
from tests.console_sample import SampleJob, config


def test_an_action_is_an_event_between_those_of_the_job() -> None:
    job = SampleJob(config(task_managers=2))
    now_ms = [500]
    log = ActionLog(lambda: now_ms[0])
    before = log.joined(job.run(3))
    now_ms[0] += 400
    log.add(action_line("pause", ["Price"]), "10.0.0.7")
    job.fall_silent(1)
    now_ms[0] += 9600
    found = log.joined(job.run(10)).events[len(before.events) :]
    assert [(event.at_ms - before.at_ms, event.kind) for event in found[:1]] == [
        (400, EventKind.ACTION)
    ]
    assert found[0].text == "pause: Price, asked for by 10.0.0.7: done"
    assert found[1].text == "TaskManager 1 fell silent"


def test_a_failure_has_its_reason_and_needs_care() -> None:
    log, snapshot = ActionLog(lambda: 0), SampleJob().run(1)
    log.joined(snapshot)
    log.add(action_line("purge", []), "10.0.0.7", "Kafka does not answer")
    event = log.joined(snapshot).events[-1]
    assert event.text == "purge: all processors, asked for by 10.0.0.7: failed"
    assert (event.reason, event.needs_care) == ("Kafka does not answer", True)


def test_only_the_latest_events_are_kept() -> None:
    log, snapshot = ActionLog(lambda: 0), SampleJob().run(1)
    log.joined(snapshot)
    for number in range(2 * MOST_EVENTS):
        log.add(str(number), "10.0.0.7")
    events = log.joined(snapshot).events
    assert len(events) == MOST_EVENTS
    assert events[-1].text.startswith(str(2 * MOST_EVENTS - 1))


def test_what_an_action_is_about_is_said_briefly() -> None:
    assert action_line("redrive", ["Gate"], (), 1) == "redrive of 1 dead letter: Gate"
    ids = [f"Gate:0:{number}" for number in range(7)]
    assert action_line("purge", [], ids, 7) == (
        "purge of 7 dead letters: Gate:0:0, Gate:0:1, Gate:0:2, Gate:0:3, Gate:0:4 and 2 more"
    )
    assert len(action_line("restart", ["x" * 5000])) < 250
