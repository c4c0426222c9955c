"""Commands to several TaskManagers, of which Kafka does not take those to one."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pipeline.common.protocol.messages import (
    HeartbeatEvent,
    Message,
    Processors,
    ReportRequest,
)
from kafka_pipeline.jobmanager.command_topics import CommandTopics
from tests.small_config import small_config

NAMES = small_config().topic_names
ERROR = Exception("no leader")
DOWN = HeartbeatEvent(2, is_up=False)


def to(tm_id: int, sequence: int = 1) -> Processors:
    return Processors(tm_id, "a", 7, sequence)


def write(topics: CommandTopics, commands: Sequence[Message], broken: int) -> list[list[Message]]:
    """Write commands as the daemon does, to a Kafka with a broken topic; return what it took."""
    taken = []
    for transaction in topics.transactions(commands):
        if any(isinstance(each, Processors) and each.tm_id == broken for each in transaction):
            topics.failed(transaction, ERROR)
            break
        topics.written(transaction)
        taken.append(transaction)
    return taken


def broken_at(tm_id: int) -> CommandTopics:
    topics = CommandTopics(NAMES)
    while not topics.findings:
        write(topics, [to(tm_id)], broken=tm_id)
    return topics


def test_all_commands_are_in_one_transaction_while_kafka_takes_them() -> None:
    topics = CommandTopics(NAMES)
    commands: list[Message] = [DOWN, to(0), to(1)]
    assert topics.transactions(commands) == [commands]
    assert topics.transactions([]) == []


def test_others_get_their_commands_soon_if_kafka_takes_none_for_one() -> None:
    topics = CommandTopics(NAMES)
    commands: list[Message] = [to(1), to(0), DOWN, to(1, 2)]
    taken = [write(topics, commands, broken=1) for _ in range(4)]
    assert taken == [[], [], [], [[to(0)], [DOWN]]]
    (finding,) = topics.findings
    assert "no task of TaskManager 1 " in finding
    assert "no leader" in finding


def test_order_of_transactions_is_that_of_their_first_commands() -> None:
    """A TaskManager that is down first reads that its tasks belong to others."""
    topics = CommandTopics(NAMES)
    topics.failed([to(2), to(0)], ERROR)
    assert topics.transactions([to(2), DOWN, to(0), to(2, 2)]) == [
        [to(2), to(2, 2)],
        [DOWN],
        [to(0)],
    ]


def test_one_failure_among_successes_leaves_nobody_out() -> None:
    """As when a broker restarts: what is repeated at once takes no longer than before."""
    topics = CommandTopics(NAMES)
    for _ in range(3):
        topics.failed([to(0)], ERROR)
        assert topics.transactions([to(0)]) == [[to(0)]]
        topics.written([to(0)])
    assert topics.findings == []


def test_failures_without_commands_to_a_task_manager_leave_nobody_out() -> None:
    topics = CommandTopics(NAMES)
    for _ in range(3):
        topics.failed([DOWN], ERROR)
    assert topics.findings == []


def test_broken_topic_is_asked_for_a_report_now_and_then() -> None:
    topics = broken_at(1)
    live = {0: "a", 1: "b"}
    assert topics.requests(live, 7, 100.0) == [ReportRequest(1, "b", 7)]
    assert topics.requests(live, 7, 104.0) == []
    assert topics.requests(live, 7, 105.0) == [ReportRequest(1, "b", 7)]
    assert topics.requests({0: "a"}, 7, 110.0) == []


def test_topic_that_takes_a_request_gets_commands_again() -> None:
    topics = broken_at(1)
    topics.confirmed([NAMES.heartbeat, NAMES.processors("0")])
    assert topics.findings
    topics.confirmed([NAMES.processors("1")])
    assert topics.findings == []
    assert topics.transactions([to(1)]) == [[to(1)]]
    topics.failed([to(1)], ERROR)
    assert topics.findings == []
