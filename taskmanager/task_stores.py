"""The stores of a task: opened and restored when it starts, committed with its transactions."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import SupersededError, UnavailableError
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.names import inside
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.stores.builder import Store
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.layout import NO_KEY
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.clients import Brokers, Reader, TransactionalProducer
from kafka_pipeline.taskmanager.restore import restore


class TaskStores:
    """The stores of a task, as bytes, by the names of the stores in its node group."""

    def __init__(
        self,
        builders: Sequence[StoreBuilder[Any, Any]],
        topics: Mapping[str, str],
        resources: StoreResources,
    ) -> None:
        """Open nothing yet; `topics` has the state topic of each logged store."""
        self._builders = builders
        self._topics = topics
        self._resources = resources
        self.stores: dict[str, BytesStore] = {}
        self._unproven: dict[str, int] = {}
        """The ends of state topics up to which stores were restored, as their leaders said."""
        self._sent: dict[str, int] = {}
        """How many records the first transaction has sent to each of these topics."""

    @property
    def definitions(self) -> Sequence[StoreBuilder[Any, Any]]:
        """The definitions of the stores, which are needed to read their bytes."""
        return self._builders

    def open(
        self, directory: Path, identities: Mapping[str, str], topic_ids: Mapping[str, str]
    ) -> None:
        """Open the stores, each in a folder of its own.

        `topic_ids` has the ids of the state topics: the content of a store belongs to one topic id.
        Raises `StoreLockedError`, `OSError`, or `NonRetriableError` for a store whose name is not
        valid for a folder.
        """
        for builder in self._builders:
            topic_id = topic_ids[self._topics[builder.name]] if builder.logged else ""
            identity = {**identities, "topic": topic_id}
            store = builder.open(folder_in(directory, builder.name), identity, self._resources)
            self.stores[builder.name] = store
            if not builder.logged:
                # Its content may come from a transaction that was never committed.
                store.wipe()

    def restore(
        self,
        number: int,
        reader: Reader,
        brokers: Brokers,
        progress: Callable[[int, int], None],
    ) -> int:
        """Bring all stores up to partition `number` of their topics; return the records read.

        Raises as `restore` does. A leader that is cut off from the other brokers may have given too
        early an end, so the first transaction must `prove` the ends.
        """
        records = 0
        for builder in filter(attrgetter("logged"), self._builders):
            store, topic = self.stores[builder.name], self._topics[builder.name]
            records += restore(store, (topic, number), reader, brokers, progress)
            self._unproven[topic] = store.offset or 0
        return records

    def positions(self, number: int) -> dict[Partition, int]:
        """Return the positions of the logged stores in partition `number` of their topics."""
        return {
            (self._topics[builder.name], number): self.stores[builder.name].offset or 0
            for builder in self._builders
            if builder.logged
        }

    def build(self, builder: StoreBuilder[Any, Any]) -> Store:
        """Return a store over its bytes."""
        return builder.build(self.stores[builder.name])

    def follow(self, topic: str, changes: Mapping[bytes, bytes | None], offset: int) -> None:
        """Apply committed records of a state topic; `offset` follows the last of them."""
        for builder in self._builders:
            if self._topics.get(builder.name) == topic:
                self.stores[builder.name].restore(changes, offset)

    @property
    def have_changed(self) -> bool:
        """Whether the open transaction has changed any store."""
        return any(store.uncommitted for store in self.stores.values())

    @property
    def are_empty(self) -> bool:
        """Whether none of the logged stores has an entry."""
        logged = (self.stores[builder.name] for builder in self._builders if builder.logged)
        return all(next(store.scan(b"", None), None) is None for store in logged)

    def send(self, producer: TransactionalProducer, number: int) -> None:
        """Send the changes to partition `number` of the state topics. Raises as `send_state`.

        The first transaction after a restore also sends changes that change nothing, if it has no
        others of a store: `prove` needs one. Also raises `StoreCorruptedError` if a store has
        closed itself and lost its uncommitted changes while user code went on.
        """
        for builder in self._builders:
            store, topic = self.stores[builder.name], self._topics.get(builder.name, "")
            store.require_open()
            if topic in self._unproven:
                if not store.uncommitted:
                    store.put(*next(store.entries(), (NO_KEY, None)))
                self._sent[topic] = len(store.uncommitted)
            if builder.logged and store.uncommitted:
                producer.send_state(topic, number, store.uncommitted)

    @property
    def are_proven(self) -> bool:
        """Whether it is certain that all stores were restored up to the ends of their topics."""
        return not self._unproven

    def prove(self, ends: Mapping[str, int]) -> None:
        """Compare where the first transaction's records are with where the restore ended.

        `ends` are the offsets after these records, by topic: only leaders whose replicas follow can
        give them. Nobody else writes to these partitions, since former owners are fenced. Raises
        `TransactionFailedError` if there are records in between, which the stores lack.
        """
        for topic, restored in self._unproven.items():
            begin = ends[topic] - self._sent[topic]
            if begin != restored:
                raise TransactionFailedError(
                    f"the state was restored up to offset {restored} of {topic}, where its leader "
                    f"said that it ended, but it ended at {begin}: that leader was probably cut "
                    "off from the other brokers. The state is restored again"
                )
        self._unproven.clear()

    def commit(self, offsets: Mapping[str, int]) -> bool:
        """Commit the changes of the transaction locally, after Kafka has committed it.

        `offsets` are the offsets after the last records of the state topics. Returns whether all of
        them are known; if not, the stores must be opened and restored again.
        """
        for builder in self._builders:
            store = self.stores[builder.name]
            if not store.uncommitted:
                continue
            if not builder.logged:
                store.commit(0)
            elif self._topics[builder.name] in offsets:
                store.commit(offsets[self._topics[builder.name]])
            else:
                return False
        return True

    def disk_bytes(self) -> int | None:
        """Return the size of the stores on disk, in bytes; `None` if there are none."""
        persistent = [builder.name for builder in self._builders if builder.persistent]
        if not persistent:
            return None
        return sum(self.stores[name].disk_bytes() for name in persistent)

    def close(self) -> None:
        """Close the stores; uncommitted changes are lost."""
        for store in self.stores.values():
            store.close()
        self.stores = {}


def task_directory(config: Config, tm_id: int, replica: ProcessorReplica) -> Path:
    """Return the directory of a task's stores on this TaskManager; a standby has the same one.

    Raises `NonRetriableError` if the task's id is not valid as a folder name.
    """
    return folder_in(job_directory(config, tm_id), str(replica.task.active))


def folder_in(directory: Path, name: str) -> Path:
    """Return the folder of this name directly in a directory. A store may wipe its folder.

    Raises `NonRetriableError` for a name, or a link, that leads anywhere else.
    """
    try:
        return inside(directory, name)
    except ValueError as error:
        raise NonRetriableError(str(error)) from error


def job_directory(config: Config, tm_id: int) -> Path:
    """Return the directory of all files that a TaskManager keeps for a job."""
    job = f"job_{config.job_name}" if config.job_name else "job"
    return config.state_dir / job / f"taskmanager_{tm_id}"


def code_directory(config: Config, tm_id: int) -> Path:
    """Return the directory of the code that a TaskManager runs.

    It is hidden, since `state_dir` may be in a folder with user code: neither the copies of other
    TaskManagers nor pytest take it for a part of that.
    """
    return job_directory(config, tm_id) / ".code"


@contextmanager
def sole_owner(config: Config, tm_id: int) -> Iterator[None]:
    """Keep other processes with this id out of its directory, where they would replace its code.

    Raises `SupersededError` if there is one that lives, `UnavailableError` if the directory cannot
    be used.
    """
    check_writable(config)
    directory = job_directory(config, tm_id)
    with ExitStack() as held:
        try:
            held.enter_context(exclusive(directory / "lock", wait=False))
        except BlockingIOError as error:
            raise SupersededError(
                f"id {tm_id} is taken by a TaskManager that runs on this host with {directory}. "
                "Give this one another id, or, if it is of another job, another job_name"
            ) from error
        except OSError as error:
            raise UnavailableError(f"{directory} cannot be locked: {error.strerror}") from error
        yield


def store_identity(replica: ProcessorReplica, cluster_id: str, tm_id: int) -> dict[str, str]:
    """Return the identity that guards the content of a task's stores, in addition to their topics.

    It includes the TaskManager: if its directory is copied to another one, the copy becomes
    outdated.
    """
    return {"cluster": cluster_id, "task": str(replica.task.active), "task_manager": str(tm_id)}


def check_writable(config: Config) -> None:
    """Raise `UnavailableError` unless the state directory can be created and written."""
    try:
        config.state_dir.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=config.state_dir):
            pass
    except OSError as error:
        raise UnavailableError(
            f"the state directory {config.state_dir} of {socket.gethostname()} cannot be written "
            f"({error.strerror}): make it writable, or set another state_dir in config.yaml."
        ) from error
