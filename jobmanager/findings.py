"""The words for what the JobManager finds wrong with its TaskManagers and its control topics."""

from __future__ import annotations

from kafka_pipeline.jobmanager.state import MOST_LOSSES


def unwritten(reason: Exception) -> str:
    """Say that Kafka does not accept commands."""
    return f"no task can be started or moved: Kafka does not accept commands: {reason}"


def no_commands_for(tm_id: int, reason: str) -> str:
    """Say that Kafka takes no commands for one TaskManager."""
    return (
        f"no task of TaskManager {tm_id} can be started or moved: Kafka takes no commands for it, "
        f"while the others get theirs: {reason}"
    )


def ignored(epoch: int, later: int, topic: str) -> str:
    """Say that TaskManagers follow a `later` epoch than that of this JobManager."""
    return (
        f"TaskManagers ignore this JobManager: they follow epoch {later}, and it has epoch {epoch}."
        f" If only one JobManager runs, topic {topic} was deleted and made again: stop all "
        "daemons, and start them again"
    )


def other_interval(tm_id: int, its_ms: int, own_ms: int) -> str:
    """Say that a TaskManager sends heartbeats at another interval."""
    return (
        f"TaskManager {tm_id} has heartbeat_interval_ms {its_ms}, and the JobManager {own_ms}: "
        "give all daemons the same, or a running one may count as down"
    )


def often_lost(tm_id: int) -> str:
    """Say that a TaskManager is down again and again."""
    return (
        f"TaskManager {tm_id} was down {MOST_LOSSES} times within ten minutes, and its tasks moved "
        "each time: see the end of its log, and check whether its host is overloaded"
    )
