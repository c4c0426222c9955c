"""The tasks of a topology over several partitions, with state topics in memory; it can rescale."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from kafka_pipeline.common.pipelines.processors import LoggedStore
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import Note, OutputColumns
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.kinds.kind import logged
from kafka_pipeline.streams.rescaling.saved import SavedRow, SpreadRow
from kafka_pipeline.streams.rescaling.state_spread import StateSpread
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from tests.unit.streams.nodes import Nodes, OutputTopics, in_memory

Piped = tuple[str, bytes, bytes | None, int]
"""Topic, key, value, timestamp."""

_Waiting = tuple[str, bytes | None, bytes | None, int, int]

Log = dict[tuple[str, int], list[SavedRow]]
"""The records of state topics, by store and task."""


class Logs:
    """State topics, as a savepoint reads them."""

    def __init__(self, log: Log | None = None) -> None:
        self.log: Log = defaultdict(list, log or {})

    def read(self, store: str, task: int) -> Iterable[Sequence[SavedRow]]:
        found = self.log.get((store, task), [])
        return [found[at : at + 7] for at in range(0, len(found), 7)]

    def last(self, store: str, task: int) -> dict[bytes, SavedRow]:
        found = {row.key: row for row in self.log.get((store, task), [])}
        return {key: row for key, row in found.items() if row.value is not None}


def spread(
    stores: Sequence[LoggedStore],
    tasks: Tasks,
    state: Logs,
    answers: Iterable[str] = (),
) -> list[tuple[str, SpreadRow]]:
    """Return the records of all stores after a change of tasks, each with its store."""
    spreading = StateSpread("P", stores, tasks, state, dict.fromkeys(answers, tasks))
    for store in stores:
        spreading.check_keys(store.name)
        spreading.check_times(store.name)
    return [(store.name, row) for store in stores for row in spreading.rows(store.name)]


class Sharded:
    """All groups of a topology, in as many tasks as there are partitions."""

    def __init__(self, topology: Topology, count: int, logs: dict[str, Logs] | None = None) -> None:
        self.topology = topology
        self.count = count
        self.logs = logs or {group.name: Logs() for group in topology.groups}
        self.results: list[tuple[bytes | None, bytes | None]] = []
        topics = [topic for group in topology.groups for topic in group.out_topics]
        self._topics = OutputTopics(dict.fromkeys(topics, count))
        self.nodes = {
            (group.name, number): Nodes(group, self._topics, number, self._restored(group, number))
            for group in topology.groups
            for number in range(count)
        }

    def pipe(self, records: Iterable[Piped]) -> None:
        """Process records one by one, and all that comes of them."""
        for topic, key, value, timestamp in records:
            waiting: deque[_Waiting] = deque(
                [(topic, key, value, timestamp, default_partition(key, self.count))]
            )
            while waiting:
                waiting += self._process(*waiting.popleft())

    def rescaled(self, count: int) -> Sharded:
        """Return the same topology with another number of tasks, and the state of this one."""
        tasks, logs = Tasks(self.count, count), {}
        for group in self.topology.groups:
            logs[group.name] = made = Logs()
            for store, row in spread(
                logged(group.stores), tasks, self.logs[group.name], group.out_topics
            ):
                made.log[store, row.partition].append(
                    SavedRow(row.key, row.value, row.timestamp, row.headers)
                )
        found = Sharded(self.topology, count, logs)
        found.results = self.results
        return found

    def _process(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, partition: int
    ) -> list[_Waiting]:
        found: list[_Waiting] = []
        for group in self.topology.groups:
            if topic not in group.in_topics:
                continue
            nodes = self.nodes[group.name, partition]
            batch = RecordBatch(topic, partition, [key], [value], [timestamp], [0], None)
            assert nodes.process(batch) == []
            self._commit(group, partition, nodes, timestamp)
            found += self._sent(nodes)
        return found

    def _sent(self, nodes: Nodes) -> list[_Waiting]:
        """Return what goes to internal topics; the rest are results."""
        read = {topic for group in self.topology.groups for topic in group.in_topics}
        found = []
        for output in nodes.runtime.outputs:
            if isinstance(output, Note):
                continue
            if isinstance(output, OutputColumns):
                places = output.partitions or [-1] * len(output.keys)
                columns = output.keys, output.values, places, output.timestamps
                rows = [(output.topic, *row) for row in zip(*columns, strict=True)]
            else:
                rows = [output[:5]]
            for topic, key, value, place, timestamp in rows:
                if topic not in read:
                    self.results.append((key, value))
                    continue
                place = default_partition(key or b"", self.count) if place < 0 else place
                found.append((topic, key, value, timestamp, place))
        nodes.runtime.outputs.clear()
        return found

    def _commit(self, group: NodeGroup, partition: int, nodes: Nodes, timestamp: int) -> None:
        for name, store in nodes.stores.items():
            log = self.logs[group.name].log[name, partition]
            log += [SavedRow(key, value, timestamp) for key, value in store.uncommitted.items()]
            store.commit(len(log))

    def _restored(self, group: NodeGroup, number: int) -> dict[str, BytesStore]:
        stores = in_memory(group)
        for name, store in stores.items():
            rows = self.logs[group.name].log[name, number]
            store.restore({row.key: row.value for row in rows}, len(rows))
        return stores
