"""The names of topics, of consumer groups and of transactional ids."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from kafka_pipeline.common.tasks import TaskId

_PROCESSORS_PREFIX = "processors_topic_"
_KAFKA_OWN = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
)

# All jobs share these groups: librdkafka needs names even for clients that commit nothing.
CONTROL_GROUP = "control"
"""The group of the readers of control topics."""
BULK_GROUP = "bulk"
"""The group of the readers of whole topics."""


def collision_key(name: str) -> str:
    """Return the form that Kafka compares: names that differ only in "." and "_" collide."""
    return name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Names of topics, of consumer groups and of transactional ids.

    With a `job_name`, all but source and sink contain it, so that jobs can share a cluster.
    """

    job_name: str | None
    source: str
    sink: str

    def arc(self, from_id: str, to_id: str) -> str:
        """Return the topic between two processors."""
        return self._of_job(f"{from_id}_{to_id}")

    def internal(self, processor_id: str, topic: str) -> str:
        """Return the Kafka topic of an internal topic of a user's topology or of a query."""
        return self._of_job(f"{processor_id}_{topic}")

    def state(self, processor_id: str, store: str | None = None) -> str:
        """Return the compacted topic from which a user's store, or a `count`, is restored.

        A `count` passes no store name, so no user's store can have its topic, not even one named
        `counts` in a class that replaces a `count` in pipeline.yaml.
        """
        if store is None:
            return self._of_job(f"state_topic_{processor_id}")
        return self._of_job(f"state_topic_{processor_id}_{store}")

    def dead_letter(self, processor_id: str) -> str:
        """Return the topic for the records that a processor rejects."""
        return self._of_job(f"{processor_id}_dead_letter")

    @property
    def threads_jm(self) -> str:
        """JobManager to all: `sos`; its offset in this topic is the JobManager's epoch."""
        return self._of_job("threads_jm_topic")

    @property
    def coordinator_proof(self) -> tuple[str, int]:
        """The partition whose offset a group's coordinator commits to prove that it is one.

        Each job has it, each TaskManager may read it, and it gets a record only when a JobManager
        starts: so tools that watch the lag of groups show next to none.
        """
        return (self.threads_jm, 0)

    @property
    def threads_tm(self) -> str:
        """TaskManager to JobManager: how many threads it has."""
        return self._of_job("threads_tm_topic")

    def processors(self, tm_id: str) -> str:
        """Return the JobManager's command topic to one TaskManager."""
        return self._of_job(f"{_PROCESSORS_PREFIX}{tm_id}")

    @property
    def heartbeat(self) -> str:
        """TaskManager to JobManager: `ping`, every heartbeat interval."""
        return self._of_job("heartbeat_topic")

    @property
    def heartbeat_events(self) -> str:
        """HeartbeatController to JobManager: `down` and `up`."""
        return self._of_job("heartbeat_events_topic")

    @property
    def pipeline(self) -> str:
        """The job's target: the versions of its pipeline, and which one to run (`Deployment`)."""
        return self._of_job("pipeline_topic")

    @property
    def rehearsal(self) -> str:
        """`pipeline rehearse` to the console: how a rehearsal of the job is, and what it found."""
        return self._of_job("rehearsal_topic")

    def consumer_group(self, processor_id: str) -> str:
        """Return the group to which a processor commits input offsets; nobody subscribes with it.

        Each processor has its own, as several may read the source, each at its own offset.
        """
        return self._of_job(f"processors_{processor_id}")

    @property
    def fetch_group(self) -> str:
        """The group of consumers that only fetch: librdkafka requires one, but stores nothing."""
        return self._of_job("processors")

    def backfill_group(self, backfill: str) -> str:
        """Return the group in which a backfill commits its progress in writing results."""
        return self._of_job(f"backfill_{backfill}")

    @property
    def task_ids(self) -> str:
        """The prefix of the transactional ids of all tasks of the job, and of no other id.

        A right on this prefix is then a right on tasks alone. Names contain no slash, so it is not
        a prefix of another job's ids either. Without a `job_name`, it is `/task/`.
        """
        return self._id("task/")

    def transactional_id(self, task: TaskId) -> str:
        """Return a task's transactional id: stable, so that a new owner fences the old one."""
        return f"{self.task_ids}{task}"

    @property
    def jobmanager_transactional_id(self) -> str:
        """The JobManager's transactional id."""
        return self._id("jobmanager")

    @property
    def pipeline_transactional_id(self) -> str:
        """The transactional id of the writer of the pipeline topic."""
        return self._id("pipeline")

    @property
    def dead_letters_transactional_id(self) -> str:
        """The transactional id of the tool that handles dead letters."""
        return self._id("dead-letters")

    @property
    def tool_ids(self) -> str:
        """The prefix of the transactional ids of tools that write records."""
        return self._id("tool/")

    def tool_transactional_id(self, unique: str) -> str:
        """Return the transactional id of one run of a tool that writes records."""
        return f"{self.tool_ids}{unique}"

    def _id(self, kind: str) -> str:
        return f"{self.job_name or ''}/{kind}"

    def reserved_for(self, name: str) -> str | None:
        """Return the owner of a reserved topic name (a control topic, or Kafka itself), or `None`.

        The command topics of all TaskManagers are reserved, since one may join at any time.
        """
        key = collision_key(name)
        for control in (
            self.threads_jm,
            self.threads_tm,
            self.heartbeat,
            self.heartbeat_events,
            self.pipeline,
            self.rehearsal,
        ):
            if key == collision_key(control):
                return f'the control topic "{control}"'
        prefix, _, suffix = collision_key(self.processors("*")).partition("*")
        if re.fullmatch(f"{re.escape(prefix)}.+{re.escape(suffix)}", key):
            return f'one of the control topics "{self.processors("<id>")}"'
        if key in _KAFKA_OWN:
            return f'Kafka\'s own topic "{key}"'
        return None

    def may_own(self, name: str) -> bool:
        """Whether a topic is named like an arc, state or dead letter topic of the job."""
        return name.endswith(self._of_job(""))

    def _of_job(self, name: str) -> str:
        return f"{name}_{self.job_name}" if self.job_name else name


def job_names(topics: Collection[str]) -> set[str | None]:
    """Return the names of the jobs whose control topics are among these; `None` means no name."""
    control = TopicNames(None, "", "").threads_jm
    named = {t.removeprefix(f"{control}_") for t in topics if t.startswith(f"{control}_")}
    return {*named, *({None} if control in topics else ())}
