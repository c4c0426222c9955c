"""What is said about an arc whose reader has failed."""

from __future__ import annotations

from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.arc_contents import held_up
from kafka_pipeline.deployment.desired_state import PipelineVersion
from kafka_pipeline.deployment.plan import Arc
from tests.unit.deployment.test_change import graph

ARC = Arc("Top_groups-repartition", ("Top",), "Top-groups")
FAILED = [
    TaskStatus(TaskId("Top-groups", number), TaskState.FAILED, "kept for another query")
    for number in range(2)
]
COMING = PipelineVersion(5, graph("A"), "", 1_700_000_000_000, "ada@host")


def test_says_what_holds_a_change_since_when_and_every_way_out() -> None:
    assert held_up(ARC, 1234, FAILED[:1], COMING) == (
        "version 5 has waited since 2023-11-14 22:13:20 UTC for Top_groups-repartition to be "
        "drained: 1,234 offsets left, and Top-groups_0 is FAILED (kept for another query). What "
        "you can do: `pipeline rollback`, or `pipeline apply`, replaces version 5. Once the cause "
        "is gone, `pipeline restart Top-groups` lets it continue. To give up what is left: "
        "`pipeline pause Top-groups`, then `pipeline reset Top-groups --to-latest --topic "
        "Top_groups-repartition`"
    )


def test_a_drain_of_the_whole_pipeline_is_taken_back_by_resume() -> None:
    text = held_up(ARC, 1, FAILED, None)
    assert text.startswith("the drain waits for Top_groups-repartition to be drained: 1 offset")
    assert "Top-groups_0, Top-groups_1 are FAILED" in text
    assert "`pipeline resume` takes the drain back" in text


def test_nothing_is_said_about_an_arc_that_is_empty_or_whose_reader_goes_on() -> None:
    assert held_up(ARC, 0, FAILED, COMING) == ""
    assert held_up(ARC, 7, [], COMING) == ""
