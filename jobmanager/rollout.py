"""Brings about what the pipeline topic asks for: the shell around `VersionChange`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeAlias

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import ConfigError, PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.deployment.arc_contents import held_up
from kafka_pipeline.deployment.change import VersionChange
from kafka_pipeline.deployment.deploy import Proposal, new_version
from kafka_pipeline.deployment.desired_state import (
    Deployed,
    Deployment,
    PipelineVersion,
    StopOrder,
    TakenBack,
    Wish,
)
from kafka_pipeline.deployment.pipeline_topic import DeploymentEditor, DeploymentReader
from kafka_pipeline.deployment.plan import arcs_to_drain
from kafka_pipeline.jobmanager.drain import DrainWatch
from kafka_pipeline.jobmanager.events import PipelineChanged
from kafka_pipeline.jobmanager.purge import ArcPurger
from kafka_pipeline.jobmanager.state import JobManagerState
from kafka_pipeline.jobmanager.topic_watch import TopicWatch
from kafka_pipeline.jobmanager.trial import Rejected, VersionTrial, late_writers

_RETRY_S = 5.0
_TRIAL_LOOK_S = 0.2

logger = structlog.get_logger()

_Written: TypeAlias = tuple[Wish] | tuple[Wish, PipelineVersion]


class Rollout:
    """Follows the pipeline topic, and leads from one version to the next."""

    def __init__(self, config: Config, admin: Admin) -> None:
        """Read what the job is to run.

        Raises `ConfigError` if nobody has said so yet, `UnavailableError` if Kafka does not answer.
        """
        self._config = config
        self._admin = admin
        self._reader = DeploymentReader(config, admin)
        if self._reader.deployment.wish is None:
            raise ConfigError(
                "this job has no pipeline yet: give the JobManager a pipeline.yaml, or make one "
                "the pipeline of the job with `pipeline apply`"
            )
        self._seen: Wish | None = None
        self._version: PipelineVersion | None = None
        self._purger: ArcPurger | None = None
        self._topics: TopicWatch | None = None
        self._watched: int | None = None
        """The number of the version whose topics are watched."""
        self._change: VersionChange | None = None
        self._drain: DrainWatch | None = None
        self._held_up: tuple[str, ...] = ()
        """Why arcs are not drained whose reader has failed."""
        self._held: frozenset[str] = frozenset()
        self._trial: VersionTrial | None = None
        self._taken_back: TakenBack | None = None
        """Which version the job has gone back from last, unless another one was applied since."""
        self._late: frozenset[str] = frozenset()
        """Who is held on the way back from a version, as when it was on trial."""
        self._look_at_s = 0.0
        self._write_at_s = 0.0

    @property
    def deployed(self) -> Deployed | None:
        """What the job runs now; None before the first `advance`."""
        if self._version is None or self._seen is None:
            return None
        return Deployed(self._version, self._seen)

    @property
    def findings(self) -> tuple[str, ...]:
        """What does not suit the version that runs, or holds up a change, at the last look.

        A version that was rolled back is one until another version is applied.
        """
        found = (*(self._topics.findings if self._topics else ()), *self._held_up)
        return (self._taken_back.text, *found) if self._taken_back else found

    @property
    def unread(self) -> Mapping[str, int]:
        """How many records wait in partitions that no task reads, by processor."""
        return self._topics.unread if self._topics else {}

    @property
    def rejected(self) -> int:
        """How many records of the pipeline topic do not count because of the key."""
        return self._reader.rejected

    def advance(self, state: JobManagerState) -> Iterator[PipelineChanged]:
        """Yield what the JobManager's core has to know, which `state` is the state of.

        Raises `ConfigError` if the control topics in Kafka do not suit the job.
        """
        self._reader.read(0)
        if self._reader.deployment.wish != self._seen:
            yield self._begin(state)
        if self._change is not None and state.is_settled:
            yield from self._go_on(self._change, state)
        elif self._trial is not None:
            yield from self._judge(self._trial, state)
        elif self._change is None:
            self._take_up_partitions()

    def close(self) -> None:
        """Stop all that watches, and disconnect."""
        self._stop()
        self._stop_drain()
        self._reader.close()

    def _begin(self, state: JobManagerState) -> PipelineChanged:
        deployment = self._reader.deployment
        version, coming = deployment.current, deployment.coming
        assert version is not None
        self._seen = deployment.wish
        assert self._seen is not None
        if self._version is None or self._version.number != version.number:
            logger.info("this version of the pipeline runs now", version=version.number)
            self._version = version
        back = (coming or version).takes_back
        if back is not None and back != self._taken_back:
            logger.error("a version was rolled back", reason=back.text)
        self._taken_back, self._late = back, frozenset()
        if coming is not None and coming.takes_back is not None:
            self._late = late_writers(coming.pipeline, version.pipeline, self._seen)
        self._watch(version, self._seen.stop)
        self._stop_drain()
        self._change, self._trial, self._write_at_s, self._held_up = None, None, 0.0, ()
        if self._drains:
            # What a change takes away is drained with all the rest.
            self._change = VersionChange.to_rest(version.pipeline)
        elif coming is not None:
            self._change = VersionChange(version.pipeline, coming.pipeline)
        if self._change is not None:
            logger.info(
                "arcs will be drained",
                version=version.number,
                next=coming and coming.number,
                arcs=[arc.topic for arc in self._change.left],
            )
        elif self._seen.trial is not None and self._seen.stop is None:
            before = deployment.version(self._seen.trial.back_to).pipeline
            interval_ms = self._config.heartbeat_interval_ms
            self._trial = VersionTrial(before, version.pipeline, self._seen, interval_ms)
            self._trial.note(state.reported(self._trial.tasks))
            logger.info(
                "the version is on trial",
                version=version.number,
                back_to=self._seen.trial.back_to,
                tasks=len(self._trial.tasks),
            )
        return self._event()

    @property
    def _drains(self) -> bool:
        """Whether the whole pipeline is to be drained now."""
        assert self._seen is not None
        stop = self._seen.stop
        return self._seen.drains if stop is None else stop.drains

    @property
    def _to_hold(self) -> frozenset[str]:
        """The processors that have to wait, for arcs that are drained or for their readers."""
        if self._change is None:
            return self._trial.held if self._trial else frozenset()
        readers = {arc.reader for arc in self._change.left}
        return self._change.held | (self._late - readers)

    def _event(self) -> PipelineChanged:
        assert self._version is not None
        assert self._seen is not None
        self._held = self._to_hold
        if self._seen.stop is not None and self._change is None:
            self._held = frozenset(each.id for each in self._version.pipeline.processors)
        standbys = self._config.num_standby_replicas
        former = self._reader.deployment.former_inputs(self._version.number)
        tasks = replicas(self._version.pipeline, standbys, self._seen.restarts, former)
        return PipelineChanged(
            tasks,
            self._held.union(self._seen.paused),
            frozenset(map(TaskId.parse, self._seen.paused_tasks)),
            self._seen.task_managers or 0,
        )

    def _go_on(self, change: VersionChange, state: JobManagerState) -> Iterator[PipelineChanged]:
        assert self._version is not None
        if self._drain is None:
            self._drain = DrainWatch(self._config, self._version.pipeline)
        running = {task.processor for task in state.running(change.held)}
        self._drain.look_at(change.drainable(running), change.to_silence(running))
        for processor in change.to_silence(running) & self._drain.silenced:
            change.silenced(processor)
        for topic in self._drain.take_drained():
            logger.info("an arc is drained", arc=topic)
            change.drained(topic)
        self._look_for_failed(change, state, self._drain.left)
        assert self._seen is not None
        if change.is_complete and self._seen.next is not None:
            number = self._seen.next
            self._write(
                "the change cannot be completed now",
                lambda deployment, seen: (seen.running(deployment.version(number)),),
            )
        elif self._to_hold != self._held:
            yield self._event()

    def _look_for_failed(
        self, change: VersionChange, state: JobManagerState, left: Mapping[str, int]
    ) -> None:
        """Find the arcs that nobody drains, as tasks of their reader have failed."""
        coming = None if self._drains else self._reader.deployment.coming
        texts = (
            held_up(arc, left.get(arc.topic, 0), state.failed(arc.reader), coming)
            for arc in change.left
        )
        found = tuple(filter(None, texts))
        for text in found:
            if text not in self._held_up:
                logger.warning("an arc is not drained", finding=text)
        self._held_up = found

    def _judge(self, trial: VersionTrial, state: JobManagerState) -> Iterator[PipelineChanged]:
        """Confirm the version that is on trial, or go back, once it is known which."""
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _TRIAL_LOOK_S
        reported = state.reported(trial.tasks)
        verdict = trial.look(int(now_s * 1000), reported, is_isolated=state.is_isolated)
        if isinstance(verdict, Rejected):
            reason = verdict.reason
            self._write(
                "the version cannot be rolled back now",
                lambda deployment, seen: _taken_back(deployment, seen, reason),
            )
        elif verdict is not None:
            self._write("the version cannot be confirmed now", lambda _, seen: (seen.confirmed(),))
        elif self._to_hold != self._held:
            yield self._event()

    def _write(self, problem: str, change: Callable[[Deployment, Wish], _Written]) -> None:
        """Write what follows from the wish that was seen, unless there is another one by now."""
        assert self._seen is not None
        if time.monotonic() < self._write_at_s:
            return
        # What is written comes back with the topic, soon after.
        self._write_at_s = time.monotonic() + _RETRY_S
        try:
            with closing(DeploymentEditor(self._config, self._admin)) as editor:
                if editor.deployment.wish == self._seen:
                    editor.write(*change(editor.deployment, self._seen))
        except PipelineError as error:
            logger.warning(problem, reason=str(error))

    def _take_up_partitions(self) -> None:
        """Make the version the next one that has the new partitions which `TopicWatch` found."""
        assert self._version is not None
        assert self._seen is not None
        if self._topics is None or self._topics.successor is None:
            return
        # If this fails, the next look finds them again.
        successor, self._topics.successor = self._topics.successor, None
        try:
            with closing(DeploymentEditor(self._config, self._admin)) as editor:
                if editor.deployment.wish == self._seen:
                    proposal = Proposal(successor, self._version.text)
                    version = new_version(editor.deployment, proposal)
                    editor.write(self._seen.of(version.number, None), version)
                    logger.info("new partitions of sources will be read", version=version.number)
        except PipelineError as error:
            logger.warning("new partitions cannot be read now", reason=str(error))

    def _watch(self, version: PipelineVersion, stop: StopOrder | None) -> None:
        """Make the topics of a version, and watch them, unless a tool works on them."""
        if stop is not None and not stop.drains:
            logger.info("nothing runs for now", purpose=stop.purpose, by=stop.by)
            self._stop()
            self._admin.ensure_topics(control_topics(self._config))
            return
        if self._watched == version.number:
            return
        self._stop()
        created = self._admin.ensure_topics(control_topics(self._config))
        created += self._ensure(version.pipeline.data_topics(self._config.replication_factor))
        logger.info("topics are ready", created=created)
        self._purger = ArcPurger(self._config, version.pipeline)
        self._topics = TopicWatch(version.pipeline, self._config, self._admin)
        for watch in (self._purger, self._topics):
            watch.start()
        self._watched = version.number

    def _ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Create the topics that are missing; return their names.

        The job goes on with one that was changed from outside, which `TopicWatch` finds: without a
        JobManager, the job would not survive the loss of a TaskManager.
        """
        try:
            return self._admin.ensure_topics(topics)
        except ConfigError:
            created = []
            for topic in topics:
                try:
                    created += self._admin.ensure_topics([topic])
                except ConfigError as error:
                    logger.error("a topic does not fit the running job", reason=str(error))
            return created

    def _stop(self) -> None:
        if self._purger is not None:
            self._purger.stop()
        if self._topics is not None:
            self._topics.stop()
        self._purger = self._topics = self._watched = None

    def _stop_drain(self) -> None:
        if self._drain is not None:
            self._drain.stop()
            self._drain = None


def _taken_back(deployment: Deployment, wish: Wish, reason: str) -> _Written:
    """Return the wish for the version before the one that is on trial, as a new version."""
    assert wish.trial is not None
    failed, before = deployment.version(wish.version), deployment.version(wish.trial.back_to)
    back = TakenBack(
        version=failed.number, to=before.number, reason=reason, savepoint=failed.savepoint
    )
    version = new_version(deployment, Proposal(before.pipeline, before.text))
    version = replace(version, takes_back=back)
    if any(arcs_to_drain(failed.pipeline, before.pipeline)):
        # Records that are left in arcs which go, or get others, are processed first.
        return wish.of(failed.number, version.number), version
    return wish.of(version.number).running(version), version
