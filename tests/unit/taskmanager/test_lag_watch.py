"""The lag of tasks, from what they report and what brokers answer."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.offsets import FirstRecord
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager import lag_watch
from kafka_pipeline.taskmanager.lag_watch import CLOSE_LOOK_S, LagWatch
from tests.unit.taskmanager.fakes import CONFIG, TIMEOUT_S, Clock, FakeBrokers, replica

NOW_MS = 1_000_000
GROUP = "processors_P"
TASK, COPY = TaskId("P", 0), TaskId("P", 0, 1)
HERE: Partition = ("in", 0)


class Rig:
    """A LagWatch whose brokers and clock are the test's."""

    def __init__(self, *replicas: ProcessorReplica) -> None:
        self.brokers = FakeBrokers()
        self.clock = Clock()
        self.watch = LagWatch(CONFIG, self.brokers, self.clock.monotonic, lambda: NOW_MS)
        for one in replicas:
            self.watch.watch(one)

    def look(self, after_s: float = 1.0) -> dict[str, int]:
        """Let time pass and the brokers be asked; return the figures of the task."""
        self.clock.now_s += after_s
        self.watch.look()
        return self.watch.figures(TASK)

    def asked(self, what: str) -> list[object]:
        return [content for name, content in self.brokers.asked if name == what]


# Lag.


def test_lag_is_the_end_less_what_is_committed() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 5000
    rig.watch.done_up_to(TASK, {HERE: 2325})
    assert rig.look() == {"lag": 2675}
    rig.watch.done_up_to(TASK, {HERE: 5000})
    assert rig.watch.figures(TASK) == {"lag": 0}


def test_lag_is_of_all_inputs_together() -> None:
    rig = Rig(replace(replica(0), in_topics=("in", "other")))
    rig.brokers.ends |= {HERE: 10, ("other", 0): 20}
    rig.watch.done_up_to(TASK, {HERE: 4, ("other", 0): 5})
    assert rig.look() == {"lag": 21}


def test_lag_is_unknown_while_one_of_the_inputs_is() -> None:
    rig = Rig(replace(replica(0), in_topics=("in", "other")))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 4, ("other", 0): 5})
    assert rig.look() == {}
    rig.brokers.ends["other", 0] = 20
    assert rig.look() == {"lag": 21}


def test_lag_is_not_negative_when_more_was_committed_since_the_brokers_were_asked() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 4})
    rig.look()
    rig.watch.done_up_to(TASK, {HERE: 12})
    assert rig.watch.figures(TASK) == {"lag": 0}


def test_markers_behind_the_last_record_do_not_count_once_a_reader_went_past_them() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 101
    rig.watch.done_up_to(TASK, {HERE: 100})
    assert rig.look() == {"lag": 1}
    rig.watch.nothing_between(TASK, HERE, 100, 101)
    assert rig.watch.figures(TASK) == {"lag": 0}
    rig.brokers.ends[HERE] = 102
    assert rig.look() == {"lag": 1}
    rig.watch.nothing_between(TASK, HERE, 100, 102)
    assert rig.watch.figures(TASK) == {"lag": 0}


def test_records_that_are_read_but_not_committed_count_though_the_end_is_reached() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 101
    rig.watch.done_up_to(TASK, {HERE: 40})
    rig.watch.nothing_between(TASK, HERE, 100, 101)
    assert rig.look() == {"lag": 61}
    rig.watch.done_up_to(TASK, {HERE: 100})
    assert rig.watch.figures(TASK) == {"lag": 0}


def test_records_that_came_after_markers_count() -> None:
    rig = Rig(replica(0))
    rig.watch.done_up_to(TASK, {HERE: 100})
    rig.watch.nothing_between(TASK, HERE, 100, 101)
    rig.brokers.ends[HERE] = 111
    assert rig.look() == {"lag": 10}


def test_a_fetch_that_brought_more_than_the_end_it_tells_of_says_nothing() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 101
    rig.watch.done_up_to(TASK, {HERE: 90})
    rig.watch.nothing_between(TASK, HERE, 100, 95)
    assert rig.look() == {"lag": 11}


# How old it is.


def test_lag_that_brokers_do_not_renew_says_how_old_it_is_after_three_heartbeats() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 4})
    rig.look()
    del rig.brokers.ends[HERE]
    assert rig.look(3.0) == {"lag": 6}
    assert rig.look(2.5) == {"lag": 6, "lag_age_ms": 5500}
    rig.brokers.ends[HERE] = 12
    assert rig.look() == {"lag": 8}


def test_age_is_that_of_the_input_that_was_not_answered_for_longest() -> None:
    rig = Rig(replace(replica(0), in_topics=("in", "other")))
    rig.brokers.ends |= {HERE: 10, ("other", 0): 20}
    rig.watch.done_up_to(TASK, {HERE: 10, ("other", 0): 20})
    rig.look()
    del rig.brokers.ends["other", 0]
    assert rig.look(5.0) == {"lag": 0, "lag_age_ms": 5000}


# Tasks that come and go, and those that say nothing.


def test_all_tasks_are_asked_for_in_one_go() -> None:
    rig = Rig(replica(0), replica(1))
    rig.look()
    assert rig.asked("ends") == [{HERE, ("in", 1)}]


def test_an_unforeseen_error_is_logged_and_the_next_look_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_watch, "LEAST_INTERVAL_S", 0.01)
    watch = LagWatch(replace(CONFIG, heartbeat_interval_ms=1), FakeBrokers())
    looked = threading.Semaphore(0)

    def look() -> None:
        looked.release()
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(watch, "look", look)
    with capture_logs() as logs:
        watch.start()
        assert all(looked.acquire(timeout=TIMEOUT_S) for _ in range(2))
        watch.close()
    assert {(line["event"], line["log_level"]) for line in logs} == {("lag is not known", "error")}


def test_without_tasks_nobody_is_asked() -> None:
    rig = Rig(replica(0))
    rig.watch.forget(TASK)
    assert rig.look() == {}
    assert rig.brokers.asked == []


def test_task_that_was_given_up_is_not_known_any_more() -> None:
    """A commit that ends just then does not bring it back."""
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 4})
    rig.look()
    rig.watch.forget(TASK)
    rig.watch.done_up_to(TASK, {HERE: 5})
    rig.watch.nothing_between(TASK, HERE, 5, 6)
    rig.watch.oldest_waits_since(TASK, 1)
    assert rig.look() == {}


def test_group_of_a_task_that_told_nothing_for_long_is_asked() -> None:
    """It may have failed before it knew where to go on."""
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.brokers.groups[GROUP] = {HERE: 3}
    assert rig.look(CLOSE_LOOK_S - 1) == {}
    assert rig.asked(GROUP) == []
    assert rig.look() == {"lag": 7}
    rig.look(CLOSE_LOOK_S)
    assert rig.asked(GROUP) == [{HERE}]


def test_group_that_has_committed_nothing_is_asked_again() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    assert rig.look(CLOSE_LOOK_S) == {}
    assert rig.look() == {}
    rig.brokers.groups[GROUP] = {HERE: 3}
    assert rig.look(CLOSE_LOOK_S - 1) == {"lag": 7}
    assert len(rig.asked(GROUP)) == 2


def test_what_a_task_tells_while_its_group_is_asked_counts() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10

    def tell(group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        rig.watch.done_up_to(TASK, {HERE: 8})
        return {HERE: 3}

    rig.brokers.committed = tell  # type: ignore[method-assign]
    assert rig.look(CLOSE_LOOK_S) == {"lag": 2}


def test_few_groups_are_asked_at_a_time() -> None:
    """Each costs a connection, and the tasks that report it themselves start just then."""
    names = [f"Q{number}" for number in range(7)]
    rig = Rig(*(replace(replica(0), task=TaskId(name, 0)) for name in names))
    groups = {f"processors_{name}" for name in names}
    rig.look(CLOSE_LOOK_S)
    first = {name for name, _ in rig.brokers.asked} & groups
    assert len(first) == 5
    rig.look()
    assert {name for name, _ in rig.brokers.asked} & groups == groups


def test_lag_of_a_copy_is_known_once_it_says_where_it_is() -> None:
    rig = Rig(replace(replica(0), task=COPY))
    state = ("state", 0)
    rig.brokers.ends[state] = 10
    rig.look()
    assert rig.watch.figures(COPY) == {}
    rig.watch.done_up_to(COPY, {state: 4})
    rig.look()
    assert rig.watch.figures(COPY) == {"lag": 6}


# The oldest record that waits.


def test_age_of_the_oldest_record_is_that_of_the_head_of_the_queue() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 4})
    rig.watch.oldest_waits_since(TASK, NOW_MS - 1500)
    assert rig.look() == {"lag": 6, "oldest_waiting_ms": 1500}
    rig.watch.done_up_to(TASK, {HERE: 10})
    assert rig.watch.figures(TASK) == {"lag": 0}


@pytest.mark.parametrize(("timestamp_ms", "age_ms"), [(NOW_MS + 5000, 0), (0, NOW_MS)])
def test_record_of_the_future_is_of_now(timestamp_ms: int, age_ms: int) -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 1
    rig.watch.done_up_to(TASK, {HERE: 0})
    rig.watch.oldest_waits_since(TASK, timestamp_ms)
    assert rig.look()["oldest_waiting_ms"] == age_ms


def test_record_without_a_time_has_no_age() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 1
    rig.watch.done_up_to(TASK, {HERE: 0})
    rig.watch.oldest_waits_since(TASK, -1)
    assert rig.look() == {"lag": 1}


def test_first_record_before_a_task_that_stands_still_is_read_once() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 4})
    rig.brokers.firsts[HERE] = FirstRecord(4, NOW_MS - 60_000)
    assert rig.look() == {"lag": 6}
    assert rig.look(CLOSE_LOOK_S) == {"lag": 6, "oldest_waiting_ms": 60_000}
    rig.look(CLOSE_LOOK_S)
    assert rig.asked("first records") == [{HERE: 4}]
    rig.watch.done_up_to(TASK, {HERE: 5})
    assert rig.watch.figures(TASK) == {"lag": 5}


def test_records_before_a_task_that_moves_or_has_one_in_its_queue_are_not_read() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 100
    for position in range(5):
        rig.watch.done_up_to(TASK, {HERE: position})
        rig.look(CLOSE_LOOK_S)
    rig.watch.oldest_waits_since(TASK, 1)
    rig.look(CLOSE_LOOK_S)
    assert rig.asked("first records") == []


def test_markers_before_a_task_that_does_not_run_are_found_by_the_read() -> None:
    """A FAILED task may be at the end, and nothing else would show it."""
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 9})
    rig.brokers.firsts[HERE] = FirstRecord(10, None)
    assert rig.look() == {"lag": 1}
    assert rig.look(CLOSE_LOOK_S) == {"lag": 0}


def test_record_that_comes_where_the_end_was_is_read_too() -> None:
    rig = Rig(replica(0))
    rig.brokers.ends[HERE] = 10
    rig.watch.done_up_to(TASK, {HERE: 9})
    rig.brokers.firsts[HERE] = FirstRecord(10, None)
    rig.look()
    rig.look(CLOSE_LOOK_S)
    rig.brokers.ends[HERE] = 11
    rig.brokers.firsts[HERE] = FirstRecord(10, NOW_MS - 7)
    rig.look(CLOSE_LOOK_S)
    assert rig.look(CLOSE_LOOK_S) == {"lag": 1, "oldest_waiting_ms": 7}


# The thread.


def test_brokers_are_asked_by_a_thread_of_its_own() -> None:
    """Even with heartbeats of 100 ms, it takes a second until then; the time limit is pytest's."""
    asked = threading.Event()
    askers: list[threading.Thread] = []

    class Brokers(FakeBrokers):
        def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
            askers.append(threading.current_thread())
            asked.set()
            return {}

    watch = LagWatch(replace(CONFIG, heartbeat_interval_ms=100), Brokers())
    watch.watch(replica(0))
    watch.start()
    assert asked.wait(TIMEOUT_S)
    watch.close()
    askers[0].join(TIMEOUT_S)
    assert not askers[0].is_alive()
    assert askers[0].name == "lag"
