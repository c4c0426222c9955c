"""Checks in the topics that each record had its results exactly once, and state is their fold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.task_stores import TaskStores
from tests.memory.broker import Broker
from tests.memory.disk import Disk
from tests.memory.partition_log import Entry, is_visible
from tests.memory.pipelines import Expected, Pipeline, pairs

Values = dict[bytes, list[bytes]]
_MANY = 1_000_000


class Judge:
    """Compares the committed work of a processor's tasks with its model."""

    def __init__(
        self, broker: Broker, pipeline: Pipeline, config: Config, inputs: Sequence[Partition]
    ) -> None:
        self._broker = broker
        self._pipeline = pipeline
        self._config = config
        self._group = config.topic_names.consumer_group(pipeline.id)
        self.inputs = [p for p in inputs if p[0] in pipeline.in_topics(config)]
        self._committed: dict[Partition, int] = {}

    @property
    def committed(self) -> dict[Partition, int]:
        """The committed offsets of the inputs."""
        return self._broker.offsets_of(self._group)

    @property
    def is_done(self) -> bool:
        """Whether all input is committed."""
        return self.is_done_but_for(())

    def is_done_but_for(self, tasks: Collection[TaskId]) -> bool:
        """Whether all input is committed, except for the input of these tasks."""
        numbers = {task.partition for task in tasks if task.processor == self._pipeline.id}
        ends = {p: self._end(p) for p in self.inputs if p[1] not in numbers}
        return all(end in (0, self.committed.get(p)) for p, end in ends.items())

    def check(self) -> None:
        """Check that offsets only advance, and that the results match the records before them."""
        committed = self.committed
        for partition, before in self._committed.items():
            now = committed[partition]
            assert now >= before, f"the offset of {partition} goes from {before} back to {now}"
        self._committed = committed
        expected = self._expected(committed)
        pipeline, config = self._pipeline, self._config
        self._compare(
            "results",
            self._by_key(pipeline.sink),
            {k: e.results for k, e in expected.items()},
        )
        self._compare(
            "dead letters",
            self._by_key(pipeline.dead_letter_topic(config)),
            {k: e.letters for k, e in expected.items() if e.letters},
        )
        if pipeline.store:
            # Without deletions that prove where the topic ends: no processor deletes anything.
            changes = self._by_key(pipeline.state_topic(config), with_deletions=False)
            found = {key: values[-1:] for key, values in changes.items()}
            self._compare("state", found, _states(expected))

    def check_queries(self, task: TaskId, stores: TaskStores) -> None:
        """Check that queries of a task's state see what is committed up to its offset, and no more.

        A transaction of the task may be open.
        """
        if task.processor != self._pipeline.id or not self._pipeline.store:
            return
        store = stores.stores.get(self._pipeline.store)
        if store is None or store.is_closed:
            return
        log = self._broker.log((self._pipeline.state_topic(self._config), task.partition))
        expected = _fold(log.entries[: store.offset or 0])
        with store.committed(_MANY, _MANY) as view, view.scan(b"", None) as entries:
            found = dict(entries)
        assert found == expected, f"a query of {task} sees {found}, not {expected}"

    def check_end(self, disk: Disk | None) -> None:
        """Check that all work is done, and that no transaction is left open."""
        self.check()
        for partition in self.inputs:
            end, at = self._end(partition), self.committed.get(partition, 0)
            assert at == end or not end, f"{partition}: {at} is committed, not {end}"
        for topic in self._written():
            for number, log in enumerate(self._broker.topics[topic].partitions):
                assert log.stable_end == log.end, f"a transaction is open in {topic}[{number}]"
        if disk is not None and self._pipeline.store:
            self._check_disk(disk)

    def _check_disk(self, disk: Disk) -> None:
        """Check that each folder has the state at its offset."""
        topic = self._pipeline.state_topic(self._config)
        for directory, folder in disk.folders.items():
            task = TaskId.parse(directory.parent.name)
            if task.processor != self._pipeline.id:
                continue
            log = self._broker.log((topic, task.partition))
            assert (folder.offset or 0) <= log.end
            state = _fold(log.entries[: folder.offset or 0])
            assert folder.content == state, f"{directory.name} is not the state at {folder.offset}"

    def _expected(self, committed: dict[Partition, int]) -> dict[bytes, Expected]:
        inputs: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for partition in self.inputs:
            entries = self._broker.log(partition).entries[: committed.get(partition, 0)]
            visible = [entry for entry in entries if is_visible(entry)]
            for key, value in self._pipeline.history(partition[1], visible):
                inputs[key].append(value)
        return {key: self._pipeline.model(values) for key, values in inputs.items()}

    def _by_key(self, topic: str, *, with_deletions: bool = True) -> Values:
        found: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for log in self._broker.topics[topic].partitions:
            entries = log.committed()
            if not with_deletions:
                entries = [entry for entry in entries if entry.value is not None]
            for key, value in pairs(entries):
                found[key].append(value)
        return found

    def _end(self, partition: Partition) -> int:
        """Return the offset after the last committed record of a partition."""
        entries = self._broker.log(partition).entries
        return max((n + 1 for n, entry in enumerate(entries) if is_visible(entry)), default=0)

    def _written(self) -> list[str]:
        pipeline, config = self._pipeline, self._config
        states = [pipeline.state_topic(config)] if pipeline.store else []
        return [pipeline.sink, pipeline.dead_letter_topic(config), *states]

    def _compare(self, what: str, found: Values, expected: Values) -> None:
        for key in sorted(found.keys() | expected.keys()):
            ours, theirs = found.get(key, []), expected.get(key, [])
            assert ours == theirs, f"{what} of {key!r}: {ours}, not {theirs}"


def _fold(entries: Iterable[Entry]) -> dict[bytes, bytes]:
    """Return the state that the committed records of a state topic make."""
    state: dict[bytes, bytes] = {}
    for entry in entries:
        if is_visible(entry) and entry.key is not None:
            if entry.value is None:
                state.pop(entry.key, None)
            else:
                state[entry.key] = entry.value
    return state


def _states(expected: dict[bytes, Expected]) -> Values:
    return {key: [each.state] for key, each in expected.items() if each.state is not None}
