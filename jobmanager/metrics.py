"""The metrics of a JobManager: its own, and what it knows of the TaskManagers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kafka_pipeline.common.cluster.code_versions import differing
from kafka_pipeline.common.monitoring.metric import Metric, Sample, counter, gauge
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.leadership import LeaderState

STATE = gauge(
    "jobmanager_state", "1 for the state that its leadership is in, 0 for the others", "state"
)
EPOCH = gauge("jobmanager_epoch", "its epoch; -1 until it leads")
VERSION = gauge("jobmanager_pipeline_version", "the version of the pipeline that runs")
ISOLATED = gauge(
    "jobmanager_isolated",
    "1 while its own heartbeats do not come back from Kafka; no TaskManager counts as down then",
)
HEARTBEATS_SENT = counter("jobmanager_heartbeats_sent_total", "heartbeats sent")
REJECTED = counter(
    "jobmanager_rejected_messages_total",
    "control messages that could not be read, and were skipped",
)
FINDINGS = gauge(
    "jobmanager_findings",
    "findings, which say what no longer suits the job, such as partitions that no task reads; "
    "see `pipeline status`",
)
EXPECTED = gauge(
    "jobmanager_taskmanagers_expected", "`tm_number` of config.yaml, or what the job was grown to"
)
CODE = gauge(
    "jobmanager_modules_with_different_code",
    "user modules of which TaskManagers run different code",
)
UP = gauge("jobmanager_taskmanager_up", "1 if the TaskManager takes part, 0 if not", "taskmanager")
HEARTBEATS_RECEIVED = counter(
    "jobmanager_heartbeats_received_total", "heartbeats and introductions received", "taskmanager"
)
SILENCE = gauge(
    "jobmanager_heartbeat_age_seconds",
    "seconds since the last heartbeat of the TaskManager; none before the first one",
    "taskmanager",
)
TASKS = gauge("jobmanager_tasks", "the tasks that the TaskManager owns", "taskmanager")
WITHOUT_OWNER = gauge(
    "jobmanager_tasks_without_owner", "tasks that no TaskManager runs, although they should run"
)
HELD = gauge(
    "jobmanager_held_tasks",
    "tasks that must not run: their processor is paused, or waits for a change",
)

METRICS: tuple[Metric, ...] = (
    *(STATE, EPOCH, VERSION, ISOLATED, HEARTBEATS_SENT, REJECTED, FINDINGS, EXPECTED),
    *(CODE, UP),
    *(HEARTBEATS_RECEIVED, SILENCE, TASKS, WITHOUT_OWNER, HELD),
)


@dataclass(slots=True)
class ReceivedBeats:
    """The heartbeats of a TaskManager: how many, and when the last one was read."""

    count: int = 0
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobManagerView:
    """A JobManager at one moment.

    `version` is -1 until it is known. `owners` has all tasks, `held` those that nobody is to run,
    `live` the TaskManagers that take part, and `code` the fingerprints of their modules.
    """

    state: LeaderState
    epoch: int
    version: int
    is_isolated: bool
    heartbeats_sent: int
    rejected: int
    findings: int
    tm_number: int
    owners: Mapping[TaskId, int | None]
    held: Collection[TaskId]
    live: Collection[int]
    code: Mapping[int, Mapping[str, str]]
    received: Mapping[int, ReceivedBeats]
    now_s: float


def samples(view: JobManagerView) -> Iterator[Sample]:
    """Yield all samples."""
    yield from STATE.one_of(LeaderState, view.state)
    yield EPOCH.sample(view.epoch)
    yield VERSION.sample(view.version)
    yield ISOLATED.sample(view.is_isolated)
    yield HEARTBEATS_SENT.sample(view.heartbeats_sent)
    yield REJECTED.sample(view.rejected)
    yield FINDINGS.sample(view.findings)
    yield EXPECTED.sample(view.tm_number)
    yield CODE.sample(len(differing(view.code)))
    owned = Counter(view.owners.values())
    for tm_id in range(view.tm_number):
        yield UP.sample(tm_id in view.live, tm_id)
        yield TASKS.sample(owned[tm_id], tm_id)
        beats = view.received.get(tm_id)
        yield HEARTBEATS_RECEIVED.sample(beats.count if beats else 0, tm_id)
        if beats:
            yield SILENCE.sample(view.now_s - beats.last_s, tm_id)
    free = [task for task, owner in view.owners.items() if owner is None]
    held = sum(task in view.held for task in free)
    yield WITHOUT_OWNER.sample(len(free) - held)
    yield HELD.sample(held)
