"""The node groups, with a task each, and the global stores that a `TopologyTestDriver` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Protocol, TypeVar
from uuid import uuid4

import structlog

from kafka_pipeline.common.protocol.key_warnings import KEYS_DO_NOT_MEET, KeyWarning
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.streams.engine.exact_sink import SinkStart
from kafka_pipeline.streams.engine.figures import TaskFigures
from kafka_pipeline.streams.engine.global_task import GlobalTask
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.key_watch import KeyWatch
from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup
from kafka_pipeline.streams.engine.outputs import OutputColumns, OutputTopics
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.engine.user_errors import Explanation
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.stores.builder import Store
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.testing.driver_topics import TASK

T = TypeVar("T")

logger = structlog.get_logger()


class Host(OutputTopics, Protocol):
    """What node groups need of the `TopologyTestDriver` that runs them."""

    now_ms: int
    max_timestamp_ahead_ms: int | None
    partitions: Mapping[str, int]

    def send(self, outputs: Sequence[OutputRecord | OutputColumns], figures: TaskFigures) -> None:
        """Write the outputs of a group to their topics."""

    def count(self, figures: TaskFigures) -> None:
        """Add to the metrics."""


class DriverGroup:
    """A node group with its one task."""

    def __init__(
        self,
        name: str,
        group: NodeGroup,
        settings: GroupSettings,
        driver: Host,
        application_id: str,
        followers: Sequence[FollowedStore],
    ) -> None:
        """Make the processors. Raises what they raise in `init`."""
        self.name = name
        self._group = group
        self._dead_letter_topic = settings.dead_letter_topic
        self._task_id = f"{name}_{TASK}"
        self._driver = driver
        self._stores: dict[str, BytesStore] = {s.name: s.open_in_memory() for s in group.stores}
        found = (topic for topic in driver.partitions if self.matches(topic))
        self.topics = tuple(dict.fromkeys((*group.in_topics, *found)))
        """The topics that the group reads."""
        self._partitions = [(topic, TASK) for topic in self.topics]
        self._key_watch = KeyWatch(group, self._partitions)
        self.failure: ProcessingFailedError | None = None
        environment = TaskEnvironment(
            application_id=application_id,
            task_id=self._task_id,
            number=TASK,
            stores=self._stores,
            output_topics=driver,
            clock_ms=lambda: driver.now_ms,
            max_timestamp_ahead_ms=driver.max_timestamp_ahead_ms,
            global_stores={follower.name: follower.task.view for follower in followers},
            log_record_values=True,
        )
        self._variables = Context()
        """The context variables of user code, which are the task's own as on a cluster."""
        make = partial(GroupTask, group, self._partitions, settings, environment)
        self.task = self._variables.run(make)
        for follower in followers:
            follower.users.append(self)
        if self.task.has_exact_sinks:
            self.task.resume_sinks(_start_of(self.topics[0]))
        self._commits = 0
        self._commit()

    @property
    def waits_until_ms(self) -> int | None:
        """When records are processed that wait for another input, by the driver's wall clock.

        `None` if none waits for that, or if the task has stopped.
        """
        return None if self.failure is not None else self.task.waits_until_ms

    @property
    def key_warnings(self) -> Sequence[KeyWarning]:
        """Warnings of keys with other bytes than the serdes would write."""
        return self._key_watch.warnings

    @property
    def waiting(self) -> int:
        """How many records wait."""
        return sum(map(self.task.waiting, self._partitions))

    @property
    def out_topics(self) -> tuple[str, ...]:
        """The topics that the group may write, as far as known, including dead letters."""
        dead_letters = self._dead_letter_topic
        return (*self._group.out_topics, *([dead_letters] if dead_letters else ()))

    @property
    def chooses_topics(self) -> bool:
        """Whether a function chooses topics that nobody else knows."""
        return self._group.chooses_topics

    @property
    def has_patterns(self) -> bool:
        """Whether one of the group's sources finds topics by a pattern."""
        return any(source.pattern for source in self._group.sources)

    def matches(self, topic: str) -> bool:
        """Whether the pattern of a source matches the topic's name."""
        return any(s.pattern and s.pattern.fullmatch(topic) for s in self._group.sources)

    def take(self, batch: RecordBatch) -> None:
        """Process a run of records. Raises what the processors raise, if `on_error` says so."""
        for warning in self._key_watch.look(batch):
            logger.warning(KEYS_DO_NOT_MEET, topic=warning.topic, reason=warning.text)
        self._attempt(lambda: self.task.add(batch))
        self.turn()

    def turn(self) -> None:
        """Process records that are ready, and call punctuations that are due by the wall clock."""
        ends = dict.fromkeys(self._partitions, 0)
        self.task.runtime.rest()  # a test may have changed stores
        while self._attempt(lambda: self.task.step(self._driver.now_ms, ends)).has_more:
            pass

    def former_store(self, name: str, version: int) -> Store:
        """Return a store as it was when its values had a former format."""
        (builder,) = (each for each in self._group.stores if each.name == name)
        return builder.of_former(version).build(self._stores[name])

    def close(self) -> None:
        """Close processors and stores. Raises what a processor raises."""
        try:
            self._variables.run(self.task.close)
        finally:
            for store in self._stores.values():
                store.close()

    def _attempt(self, action: Callable[[], T]) -> T:
        if self.failure is not None:
            raise StreamsError(
                f"the task {self._task_id} has stopped: {self.failure}"
            ) from self.failure.error
        try:
            result = self._variables.run(action)
        except ProcessingFailedError as error:
            self.failure = error
            self._commit()
            if advice := Explanation(error.error).advice:
                error.error.add_note(advice)
            raise error.error from error.error.__cause__
        self._commit()
        return result

    def _commit(self) -> None:
        self._commits += 1
        if self.task.has_exact_sinks:
            self.task.write_sinks(self.task.position(self._partitions[0]) or 0)
        for store in self._stores.values():
            store.commit(self._commits)
        self._driver.send(*self.task.take())


class FollowedStore:
    """A global store that follows its topic."""

    def __init__(self, store: GlobalStore, driver: Host, application_id: str) -> None:
        """Make the processor. Raises what it raises in `init`."""
        self.name = store.store.name
        self.users: list[DriverGroup] = []
        self.topics = (store.topic,)
        """The topic that the store follows."""
        self._driver = driver
        self.task = GlobalTask(
            store,
            [(store.topic, TASK)],
            store.store.open_in_memory(),
            application_id=application_id,
            clock_ms=lambda: driver.now_ms,
            log_record_values=True,
        )

    def take(self, batch: RecordBatch) -> None:
        """Bring the store up to date; if that fails, the tasks that read the store stop."""
        try:
            self.task.add(batch)
        except ProcessingFailedError as error:
            reason = f'global store "{self.name}": {error}'
            for user in self.users:
                user.failure = user.failure or ProcessingFailedError(reason, error.error)
            raise error.error from error.error.__cause__
        finally:
            self._driver.count(TaskFigures(dropped=self.task.take_dropped()))


def _start_of(topic: str) -> SinkStart:
    """Return the start of a task at an empty topic, which is another one for each driver."""
    return SinkStart(topic, uuid4().hex, TASK, committed=None, oldest=0, end=0)


def held_back(topic: str, groups: Sequence[DriverGroup], now_ms: int) -> str:
    """Return which records wait that may lead to records of a topic, and for what; or ""."""
    waiting = [g for g in _leading_to(topic, groups) if g.waits_until_ms is not None]
    if not waiting:
        return ""
    count = sum(group.waiting for group in waiting)
    wait_ms = max(group.waits_until_ms or 0 for group in waiting) - now_ms
    records = "1 record waits" if count == 1 else f"{count} records wait"
    return f"{records}: advance the wall clock by {wait_ms} ms (max_task_idle_ms)"


def _leading_to(topic: str, groups: Sequence[DriverGroup]) -> list[DriverGroup]:
    """Return the groups whose records may lead to records of a topic, also by way of others."""
    found: list[DriverGroup] = []
    topics = [topic]
    while topics:
        written = topics.pop()
        for group in groups:
            if group not in found and (written in group.out_topics or group.chooses_topics):
                found.append(group)
                topics += group.topics
    return found
