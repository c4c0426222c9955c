"""The global stores of a PipelineThread: one copy of each follows its topic, for all tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock

import structlog

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import Fetched
from kafka_pipeline.common.kafka.read_to_end import read_to_end
from kafka_pipeline.streams.engine.global_task import GlobalTask
from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup
from kafka_pipeline.streams.engine.outputs import described
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.user_errors import Explanation, reason
from kafka_pipeline.streams.errors import StreamsError, SupplierError
from kafka_pipeline.streams.stores.bytes_store import BytesStore, StoreBytes
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.clients import Clients, Reader
from kafka_pipeline.taskmanager.restore import FETCH_RECORDS, FETCH_WAIT_S, STALL_TIMEOUT_S
from kafka_pipeline.taskmanager.task_stores import folder_in, job_directory
from kafka_pipeline.taskmanager.user_errors import log_user_error

logger = structlog.get_logger()
Progress = Callable[[int, int], None]


class GlobalStores:
    """Keeps one copy of each global store that any task of this PipelineThread uses.

    Tasks call `open` on the threads that start them. `update` runs on the thread of user code,
    where these tasks have their turns. When the first task opens a copy, it is rebuilt, even if it
    is on disk: its processor may give a wrong result if it sees a record twice (KAFKA-7663). The
    copy is closed when its last task releases it.
    """

    def __init__(
        self,
        config: Config,
        tm_id: int,
        thread: int,
        clients: Clients,
        resources: StoreResources | None = None,
    ) -> None:
        self._config = config
        self._resources = resources or StoreResources()
        self._directory = job_directory(config, tm_id) / "global_stores" / f"thread_{thread}"
        self._clients = clients
        self._copies: dict[str, _Copy] = {}
        self._lock = Lock()

    def open(
        self, user: object, group: NodeGroup, key: str, progress: Progress
    ) -> dict[str, StoreBytes]:
        """Return the group's global stores as a task reads them, by name.

        If no task has opened a store before, this blocks until the store has all records that its
        topic has now. `user` holds the stores until `release`, even if this raises. Groups with the
        same `key` share. `progress(restored, total)` reports offsets, and may raise to end this.
        Raises `NonRetriableError` for a record that fails, `TransactionFailedError` if the brokers
        deliver nothing for 60 s, `StoreLockedError`, `OSError`, errors of the processor's `init`,
        and the error that has stopped a copy that others still hold.
        """
        views: dict[str, StoreBytes] = {}
        for store in group.global_stores:
            name = store.store.name
            digest = hashlib.sha256(f"{name} {key}".encode()).hexdigest()[:12]
            directory = folder_in(self._directory, f"{name}_{digest}")
            with self._lock:
                copy = self._copies.get(directory.name)
                if copy is None:
                    copy = _Copy(store, directory, self._config, self._clients, self._resources)
                    self._copies[directory.name] = copy
                copy.users.add(user)
            views[name] = copy.bring_up(progress)
        return views

    @property
    def are_used(self) -> bool:
        """Whether any task holds a global store."""
        return bool(self._copies)

    def release(self, user: object) -> None:
        """Release all stores of a user; blocks some ms to close unused copies."""
        with self._lock:
            unused = []
            for name, copy in list(self._copies.items()):
                copy.users.discard(user)
                if not copy.users:
                    unused.append(self._copies.pop(name))
        for copy in unused:
            copy.close()

    def update(self, max_records: int) -> dict[object, Exception]:
        """Apply new records of the topics to the stores, at most `max_records` for each.

        Never waits for records. Returns the users of copies that have failed, with the error. These
        tasks must stop or start again, just as after such an error of their own.
        """
        with self._lock:
            copies = list(self._copies.values())
        failed: dict[object, Exception] = {}
        for copy in copies:
            copy.update(max_records)
            if copy.failure is not None:
                with self._lock:
                    failed |= dict.fromkeys(copy.users, copy.failure)
        return failed


class _Copy:
    """One global store in this process.

    Several threads may call `bring_up`, but only one calls `update` and `close`. No thread calls
    `bring_up` during `close`, since a task that does so is one of the `users`.
    """

    def __init__(
        self,
        store: GlobalStore,
        directory: Path,
        config: Config,
        clients: Clients,
        resources: StoreResources,
    ) -> None:
        self.users: set[object] = set()
        self.failure: Exception | None = None
        self._definition = store
        self._directory = directory
        self._config = config
        self._clients = clients
        self._resources = resources
        self._starting = Lock()
        self._is_ready = False
        self._store: BytesStore | None = None
        self._reader: Reader | None = None
        self._task: GlobalTask | None = None
        self._log = logger.bind(store=store.store.name, topic=store.topic)

    def bring_up(self, progress: Progress) -> StoreBytes:
        """Return the store's bytes once it has all records that the topic had at the first call."""
        while not self._starting.acquire(timeout=FETCH_WAIT_S):
            progress(0, 0)
        try:
            if self.failure is not None:
                raise self.failure
            if not self._is_ready:
                self._read_all(progress)
                self._is_ready = True
            assert self._task is not None
            return self._task.view
        except BaseException:
            if not self._is_ready:
                self.close()
            raise
        finally:
            self._starting.release()

    def update(self, max_records: int) -> None:
        """Apply new records; an error becomes the `failure`."""
        if not self._is_ready or self.failure is not None:
            return
        assert self._reader is not None
        assert self._store is not None
        try:
            self._store.require_open()
            self._take(self._reader.fetch(max_records, 0))
        except BaseException as raised:
            error = as_exception(raised)
            self.failure = error

    def close(self) -> None:
        """Release the consumer, the processor and the store, whose files are not used again."""
        reader, self._reader = self._reader, None
        task, self._task = self._task, None
        store, self._store = self._store, None
        if reader is not None:
            reader.close()
        if task is not None:
            try:
                task.close()
            except BaseException as raised:
                error = as_exception(raised)
                self._log.warning("a processor did not close cleanly", reason=self._why(error))
        elif store is not None:
            store.close()

    def _read_all(self, progress: Progress) -> None:
        """Fill the store up to the current high watermarks."""
        topic = self._definition.topic
        count = self._count_partitions(topic)
        self._store = self._definition.store.open(self._directory, {}, self._resources)
        self._store.wipe()
        ends = self._clients.brokers.high_watermarks([(topic, number) for number in range(count)])
        group = self._config.topic_names.fetch_group
        self._reader = reader = self._clients.reader(group, is_watched=True)
        starts = self._clients.brokers.oldest_offsets(list(ends))
        self._make_task(self._store, list(ends))
        reader.assign(starts)
        total = sum(max(end - starts[partition], 0) for partition, end in ends.items())
        progress(0, total)
        fetch = partial(reader.fetch, FETCH_RECORDS, FETCH_WAIT_S)
        for fetched, left in read_to_end(reader, ends, fetch, STALL_TIMEOUT_S):
            self._take(fetched)
            progress(total - left, total)
        self._log.info("global store is ready", offsets_read=total, partitions=count)

    def _count_partitions(self, topic: str) -> int:
        try:
            counts = self._clients.brokers.partition_counts([topic])
        except UnavailableError as error:
            raise TransactionFailedError(str(error)) from error
        if topic not in counts:
            # The topic was confirmed just now, possibly by another broker.
            raise TransactionFailedError(f"a broker does not know topic {topic}")
        return counts[topic]

    def _make_task(self, store: BytesStore, partitions: list[Partition]) -> None:
        try:
            self._task = GlobalTask(
                self._definition,
                partitions,
                store,
                application_id=self._config.job_name or "",
                clock_ms=wall_clock_ms,
                log_record_values=self._config.log_record_values,
            )
        except SupplierError:
            raise
        except StreamsError as error:
            raise self._non_retriable(self._why(error)) from error

    def _take(self, fetched: Fetched) -> None:
        assert self._task is not None
        for error in fetched.errors:
            if error.is_out_of_range:
                # The next start reads the topic from its first record on.
                raise TransactionFailedError(self._named(str(error)))
            raise self._non_retriable(str(error))
        for batch in fetched.batches:
            try:
                self._task.add(batch)
            except ProcessingFailedError as error:
                with_values = self._config.log_record_values
                log_user_error(Explanation(error.error, with_values=with_values), self._log)
                raise self._non_retriable(str(error)) from error
        dropped = self._task.take_dropped()
        if dropped:
            self._log.warning("records left out of a global store", records=described(dropped))

    def _why(self, error: Exception) -> str:
        return reason(error, with_values=self._config.log_record_values)

    def _non_retriable(self, reason: str) -> NonRetriableError:
        return NonRetriableError(self._named(reason))

    def _named(self, reason: str) -> str:
        return f'global store "{self._definition.store.name}": {reason}'
