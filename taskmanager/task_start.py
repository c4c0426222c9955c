"""The start of a task: fence the former owner, find the positions, restore, call `init`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

from kafka_pipeline.common.clock import shown_moment, wall_clock_ms
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.committed import NO_EPOCH, Committed, offsets_of, topic_mark
from kafka_pipeline.common.errors import ConfigError, EngineError, PipelineError
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.topic_watch import MADE_ANEW
from kafka_pipeline.common.process.fault_points import reach
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.protocol.suspects import CallKind
from kafka_pipeline.streams.engine.call_mark import CallMark, NoMark
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.engine.exact_sink import SinkStart
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.key_watch import KeyWatch
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.runtime import UserCall
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.errors import StreamsError, SupplierError
from kafka_pipeline.streams.event_time.input_time import FEEDBACK, InputTime, Origins
from kafka_pipeline.streams.event_time.progress import Progress
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.units import group_of, settings_of, sharing_key, valued
from kafka_pipeline.streams.stores.bytes_store import StoreBytes
from kafka_pipeline.taskmanager.clients import Reader, TransactionalProducer
from kafka_pipeline.taskmanager.offset_doubt import GO_ON
from kafka_pipeline.taskmanager.past_records import PastRecords
from kafka_pipeline.taskmanager.past_start import histories_of, open_past
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskContext, TaskMemory
from kafka_pipeline.taskmanager.task import KafkaOutputTopics, Task
from kafka_pipeline.taskmanager.task_rights import written_topics
from kafka_pipeline.taskmanager.task_stores import TaskStores, store_identity, task_directory
from kafka_pipeline.taskmanager.user_errors import UserCodeError, log_context

COORDINATOR_TIMEOUT_S = 15
"""How long one client waits for the coordinator of a group or of its transactions. The next one may
find another: the broker that this one has found may be cut off from the others, and librdkafka asks
for another one only if that broker says that it is none."""
_STATE_LOST = "the topic was deleted and created again, and state was lost with it"


class StartCancelledError(Exception):
    """The task was cancelled while it started. The caller requested that, and forgets it."""


class StartWait(NamedTuple):
    """The answer that a start is waiting for, and since when, by `time.monotonic`."""

    place: str
    since_s: float


class TaskStart(ABC):
    """One start of a task. `run` blocks; any thread may read its progress or cancel it."""

    def __init__(
        self,
        replica: ProcessorReplica,
        context: TaskContext,
        memory: TaskMemory,
        log: Any,
        event_loop: EventLoop,
        wake: Callable[[], None],
    ) -> None:
        """Prepare the start. The task calls `wake`, on any thread, when one of its calls ends."""
        self.state = TaskState.STARTING
        self.restored = 0
        """The number of offsets of state topics read so far."""
        self.to_restore = 0
        self.call: UserCall | None = None
        """The call of a user's `init` that is in progress."""
        self.wait: StartWait | None = None
        """The answer that it is waiting for, if that may take long."""
        self._replica = replica
        self._context = context
        self._memory = memory
        self._log = log
        self._event_loop = event_loop
        self._wake = wake
        self._is_cancelled = False
        self._restore_began_s = 0.0

    @abstractmethod
    def run(self) -> RunningTask:
        """Return the started task. If this raises, nothing is left open.

        Raises `FencedError`, `NonRetriableError`, `TransactionFailedError`, `StoreLockedError`,
        `StoreUnavailableError`, `OSError` (the state directory), `StartCancelledError`,
        `UserCodeError` if a supplier or `init` of user code fails, or the error that has stopped a
        global store.
        """

    def cancel(self) -> None:
        """Make `run` end soon, with `StartCancelledError`."""
        self._is_cancelled = True

    @property
    def restore_eta_s(self) -> int | None:
        """Seconds until the restore ends at its current rate; `None` while unknown."""
        if self.state is not TaskState.RESTORING or not self.restored:
            return None
        # A standby's owner keeps writing, so more may have been read than there was at first.
        left = max(self.to_restore - self.restored, 0)
        return round((time.monotonic() - self._restore_began_s) * left / self.restored)

    def _require_wanted(self) -> None:
        if self._is_cancelled:
            raise StartCancelledError

    def _node_group(self) -> NodeGroup:
        try:
            queries = self._context.queries
            queries = queries and queries.while_waiting(self._require_wanted)
            with log_context(self._replica.task):
                unit = valued(self._replica, queries, self._context.config.tables)
                return group_of(
                    unit,
                    UserCode.of(self._context.config),
                    queries,
                    self._context.config.schema_registry,
                )
        except (ConfigError, StreamsError) as error:
            raise NonRetriableError(str(error)) from error

    def _require_topics_of(self, stores: TaskStores) -> None:
        """Raise `NonRetriableError` if the code here keeps stores that the version does not."""
        for store in stores.definitions:
            if store.logged and store.name not in self._replica.state_topics:
                raise NonRetriableError(
                    f'the code here keeps the store "{store.name}" in "{self._replica.name}", and '
                    "this version of the pipeline was applied with code that does not: restart "
                    "the TaskManager if its code is the older one, or apply pipeline.yaml again "
                    "with this code"
                )

    def _restore(self, stores: TaskStores, reader: Reader) -> int:
        """Open the stores and restore them from their topics; return the number of records read."""
        context, replica = self._context, self._replica
        brokers = context.clients.brokers
        self._require_topics_of(stores)
        self.state = TaskState.RESTORING
        stores.open(
            task_directory(context.config, context.tm_id, replica),
            store_identity(replica, context.cluster_id, context.tm_id),
            brokers.topic_ids([*replica.state_topics.values()]),
        )
        return stores.restore(replica.task.partition, reader, brokers, self._progress)

    def _progress(self, restored: int, total: int) -> None:
        if not restored:
            self._restore_began_s = time.monotonic()
        self.restored, self.to_restore = restored, total
        self._require_wanted()

    def _log_start(
        self, event: str, positions: Mapping[Partition, int], records: int, began_s: float
    ) -> None:
        self._log.info(
            event,
            positions={f"{topic}-{number}": at for (topic, number), at in positions.items()},
            state_records_read=records,
            seconds=round(time.monotonic() - began_s, 3),
        )


class ProcessorStart(TaskStart):
    """The start of a task that processes records."""

    def run(self) -> Task:
        began_s = time.monotonic()
        replica, clients = self._replica, self._context.clients
        self._require_no_verdict()
        new_mark = self._new_mark()
        mark = new_mark()
        mark.set(CallKind.INIT)
        group = self._node_group()
        mark.clear()
        written = written_topics(replica)
        followed = [store.topic for store in group.global_stores]
        counts = self._counts([*followed, *written])
        limits = clients.brokers.topic_limits(written)
        sizes = {topic: each.size_bytes for topic, each in limits.items()}
        with ExitStack() as undo:
            transactional_id = self._context.config.topic_names.transactional_id(replica.task)
            producer = clients.producer(transactional_id, sizes, replica.arcs)
            undo.callback(producer.close)
            # Created early: a reader that is used while it connects may take 0.7 s to answer. The
            # start has its own reader, since only one thread may use each.
            with closing(clients.reader(self._group)) as reader:
                reach("before-fence")
                self._fence(producer)
                # Not before the fence: until then, the former owner could still commit.
                committed = self._committed(reader)
                positions, past = self._begin(group, committed)
                self._require_unbroken(
                    reader, {p: at for p, at in committed.items() if p not in past}
                )
                self._warn_of_times(positions)
                self._context.lag_watch.done_up_to(replica.task, offsets_of(positions))
                stores = TaskStores(
                    group.stores, replica.state_topics, self._context.store_resources
                )
                undo.callback(stores.close)
                read = self._restore(stores, reader) if group.stores else 0
                if not committed and not stores.are_empty:
                    self._require_former_inputs(reader)
                group_metadata = reader.group_metadata
                if any(group.begins_at_end(topic) for topic, _ in positions.keys() - committed):
                    # Records that arrive before the first transaction must not be skipped.
                    producer.begin()
                    producer.commit(positions, group_metadata)
            undo.callback(self._context.global_stores.release, replica.task)
            views = self._open_global_stores(group)
            input_time = self._input_time(group, positions)
            outputs = KafkaOutputTopics(producer, clients.brokers, limits)
            nodes = self._make_nodes(group, stores, views, outputs, positions, input_time, new_mark)
            self._resume_sinks(nodes, committed)
            undo.pop_all()
        if input_time is not None and replica.event_time is not None:
            self._context.time_watch.watch(replica.task, replica.event_time, input_time)
        self._log_start("task runs", offsets_of(positions), read, began_s)
        return Task(
            replica,
            self._context,
            self._memory,
            self._log,
            producer=producer,
            stores=stores,
            nodes=nodes,
            key_watch=KeyWatch(group, positions, counts),
            input_time=input_time,
            holds=self._holds(group),
            positions=positions,
            past=past,
            group_metadata=group_metadata,
            kept_ms={topic: limits[topic].kept_ms for topic in replica.out_topics},
        )

    def _holds(self, group: NodeGroup) -> tuple[tuple[str, int], ...]:
        return tuple(
            (topic_mark(topic), hold_ms)
            for topic in sorted(self._replica.arcs)
            if (hold_ms := group.hold_ms_to(topic))
        )

    def _fence(self, producer: TransactionalProducer) -> None:
        """Take the transactional id over, unless another TaskManager may run the task by now."""
        gate = self._context.gate
        place = "the JobManager's commands, as others may own the task"
        self.wait = StartWait(place, time.monotonic()) if not gate.is_open else None
        try:
            gate.wait(self._require_wanted)
        finally:
            self.wait = None
        self._require_wanted()
        producer.fence(COORDINATOR_TIMEOUT_S, gate.require_open)

    def _resume_sinks(self, nodes: GroupTask, committed: Mapping[Partition, Committed]) -> None:
        """Let results outside of Kafka go on; if that fails, the nodes are closed."""
        if not nodes.has_exact_sinks:
            return
        (topic,) = self._replica.in_topics
        partition = (topic, self._replica.task.partition)
        brokers = self._context.clients.brokers
        try:
            nodes.resume_sinks(
                SinkStart(
                    topic,
                    brokers.topic_ids([topic])[topic],
                    self._replica.task.partition,
                    committed[partition].offset if partition in committed else None,
                    brokers.oldest_offsets([partition])[partition],
                    brokers.stable_ends([partition])[partition],
                )
            )
        except BaseException:
            nodes.close()
            raise

    def _counts(self, others: Sequence[str]) -> dict[str, int]:
        """Return the numbers of partitions of the inputs and of other topics.

        Raises `NonRetriableError` if an input or a state topic is another topic than at the task's
        last start. The `others` include the state topics.
        """
        inputs, number = self._replica.in_topics, self._replica.task.partition
        topics = self._context.clients.brokers.existing_topics([*inputs, *others])
        for topic in (*inputs, *self._replica.state_topics.values()):
            id_ = topics[topic].id
            if self._memory.topic_ids.setdefault(topic, id_) != id_:
                what = MADE_ANEW if topic in inputs else _STATE_LOST
                raise NonRetriableError(f"{topic}[{number}]: {what}")
        return {topic: each.partitions for topic, each in topics.items()}

    def _require_no_verdict(self) -> None:
        """Raise `NonRetriableError` if a verdict blames a call that concerns no record."""
        for each in self._replica.suspects:
            if each.verdict and not each.is_about_records:
                raise NonRetriableError(f"{each.place} ended the process: {each.verdict}")

    def _new_mark(self) -> Callable[[], CallMark]:
        """Return the maker of marks; queries run in other processes, and need none."""
        if kind_of(self._replica.spec).needs_spark:
            return NoMark
        return self._context.marks.of(self._replica.task)

    def _open_global_stores(self, group: NodeGroup) -> dict[str, StoreBytes]:
        if not group.global_stores:
            return {}
        self.state = TaskState.RESTORING
        key = sharing_key(self._replica)
        stores = self._context.global_stores
        with self._making_processors():
            return stores.open(self._replica.task, group, key, self._progress)

    def _input_time(
        self, group: NodeGroup, positions: Mapping[Partition, Committed]
    ) -> InputTime | None:
        """Return the event time of the task's inputs; `None` if no task needs it."""
        spec = self._replica.event_time
        if spec is None:
            return None
        feedback = group.feedback_topics
        writers = {
            (topic, number): FEEDBACK
            if topic in feedback
            else sum(writer.tasks for writer in spec.writers.get(topic, ()))
            for topic, number in positions
        }
        known = {
            partition: Progress(at.progress.time_ms, sources_ms=at.progress.sources_ms)
            for partition, at in positions.items()
            if at.progress is not None
        }
        origins = {
            (topic, number): Origins(spec.origins(topic), spec.origins(topic, with_feedback=False))
            for topic, number in positions
            if topic in spec.writers
        }
        holds = any(map(group.hold_ms_to, self._replica.arcs))
        idle_after_ms = self._context.config.idle_after_ms
        return InputTime(
            writers,
            idle_after_ms,
            known,
            origins,
            looked_up=spec.looked_up,
            returning=spec.returning_to(self._replica.task.processor),
            passes_sources_on=holds,
        )

    def _make_nodes(
        self,
        group: NodeGroup,
        stores: TaskStores,
        global_stores: Mapping[str, StoreBytes],
        output_topics: KafkaOutputTopics,
        positions: Mapping[Partition, Committed],
        input_time: InputTime | None,
        new_mark: Callable[[], CallMark],
    ) -> GroupTask:
        replica = self._replica
        may_quote = bool(group.stores or group.global_stores)
        with self._making_processors(may_quote=may_quote), self._calling("`init`"):
            return GroupTask(
                group,
                list(positions),
                settings_of(replica),
                TaskEnvironment(
                    application_id=self._context.config.job_name or "",
                    task_id=str(replica.task),
                    number=replica.task.partition,
                    stores=stores.stores,
                    output_topics=output_topics,
                    clock_ms=wall_clock_ms,
                    max_timestamp_ahead_ms=self._context.config.max_timestamp_ahead_ms,
                    global_stores=global_stores,
                    loop=self._event_loop,
                    log_record_values=self._context.config.log_record_values,
                    wake=self._wake,
                    new_mark=new_mark,
                    suspects=replica.suspects,
                    clocked_topics=() if input_time is None else replica.arcs.keys(),
                ),
                times={partition: at.time_ms for partition, at in positions.items()},
                input_time=input_time,
                on_user_error=self._note_user_error,
            )

    @contextmanager
    def _calling(self, place: str) -> Iterator[None]:
        self.call = UserCall(place, time.monotonic())
        try:
            yield
        finally:
            self.call = None

    def _note_user_error(self, error: Exception) -> None:
        self._context.user_errors.record(error, self._log)

    @contextmanager
    def _making_processors(self, *, may_quote: bool = True) -> Iterator[None]:
        """Run suppliers and `init`; raises `UserCodeError` or `NonRetriableError` if one fails.

        No record has been read yet, so their errors `may_quote` one only if they can read state.
        """
        with_values = self._context.config.log_record_values or not may_quote
        try:
            with log_context(self._replica.task):
                yield
        except (EngineError, PipelineError):
            raise
        except BaseException as raised:
            error = as_exception(raised)
            user_errors = self._context.user_errors
            is_user_error = user_errors.record(error, self._log, with_values=with_values)
            if is_user_error or isinstance(error, StreamsError):
                # What the engine itself refuses now, it would refuse at the next start too.
                is_final = isinstance(error, StreamsError) and type(error) is not SupplierError
                kind = NonRetriableError if is_final else UserCodeError
                raise kind(reason(error, with_values=with_values)) from error
            raise

    def _committed(self, reader: Reader) -> dict[Partition, Committed]:
        """Return the committed positions, without inputs that have none."""
        partitions = [(topic, self._replica.task.partition) for topic in self._replica.in_topics]
        self.wait = StartWait(f"the coordinator of group {self._group}", time.monotonic())
        try:
            committed = reader.committed(
                partitions,
                COORDINATOR_TIMEOUT_S,
                self._context.config.topic_names.coordinator_proof,
            )
        finally:
            self.wait = None
        if any(at.is_being_reset for at in committed.values()):
            raise NonRetriableError(
                "a `pipeline reset` of the processor was interrupted, with --state clear perhaps "
                "after its state was deleted: pause the processor, and repeat the command"
            )
        require_not_rewound(self._memory, offsets_of(committed))
        self._memory.resume_counts(committed.values())
        return committed

    def _begin(
        self, group: NodeGroup, committed: Mapping[Partition, Committed]
    ) -> tuple[dict[Partition, Committed], dict[Partition, PastRecords]]:
        """Return the positions at which to continue, and what tables have from there on."""
        histories = histories_of(self._replica, self._context.config.tables)
        positions = self._find_positions(group, committed, histories)
        past = open_past(histories, offsets_of(positions), self._context.clients.brokers)
        in_topics = {place: records.end for place, records in past.items()}
        self._resolve_doubt({**offsets_of(positions), **in_topics})
        return positions, past

    def _find_positions(
        self,
        group: NodeGroup,
        committed: Mapping[Partition, Committed],
        histories: Collection[str],
    ) -> dict[Partition, Committed]:
        """Return the positions at which to continue, in the order of the inputs.

        `histories` are the topics whose deleted records a table has.
        """
        partitions = [(topic, self._replica.task.partition) for topic in self._replica.in_topics]
        new = [partition for partition in partitions if partition not in committed]
        at_end = [partition for partition in new if group.begins_at_end(partition[0])]
        others = [partition for partition in new if partition not in at_end]
        at_start = [partition for partition in others if partition[0] not in histories]
        brokers = self._context.clients.brokers
        offsets = brokers.stable_ends(at_end) | brokers.oldest_offsets(at_start)
        offsets |= {place: 0 for place in others if place[0] in histories}
        known = {**committed, **{place: Committed(offset) for place, offset in offsets.items()}}
        return {partition: known[partition] for partition in partitions}

    def _resolve_doubt(self, positions: Mapping[Partition, int]) -> None:
        """Ask about positions that a leader did not have. Raises as `OffsetDoubt.weigh` does."""
        doubt = self._memory.doubt
        if partitions := doubt.partitions:
            brokers = self._context.clients.new_brokers()
            oldest, ends = brokers.oldest_offsets(partitions), brokers.high_watermarks(partitions)
            doubt.weigh(positions, oldest, ends)

    def _require_unbroken(self, reader: Reader, positions: Mapping[Partition, Committed]) -> None:
        """Raise the error of an input that no longer has records that were processed.

        An unclean election of its leader does that, and begins an epoch. Once the input has grown
        beyond the position, the records that are new before it would be left out. Brokers that do
        not say the epoch of a leader cannot be asked.
        """
        doubtful = {p: at for p, at in positions.items() if at.leader_epoch != NO_EPOCH}
        if doubtful:
            epochs = self._context.clients.brokers.leader_epochs([*doubtful])
            doubtful = {
                p: at for p, at in doubtful.items() if epochs[p] not in (None, at.leader_epoch)
            }
        errors = reader.losses(doubtful, COORDINATOR_TIMEOUT_S) if doubtful else []
        self._memory.doubt.weigh_epochs(doubtful, errors)

    def _warn_of_times(self, positions: Mapping[Partition, Committed]) -> None:
        """Log committed times that are too far in the future: all records since may be late."""
        latest_ms = wall_clock_ms() + self._context.config.max_timestamp_ahead_ms
        for (topic, number), at in positions.items():
            if at.time_ms > latest_ms:
                self._log.warning(
                    "event time is ahead of the clock, so records are late; what to do: "
                    'docs/how-to/troubleshoot.md, "Event time is in the future"',
                    partition=f"{topic}-{number}",
                    time=shown_moment(at.time_ms),
                )

    def _require_former_inputs(self, reader: Reader) -> None:
        """Raise `NonRetriableError` unless the task, which has state, has read other inputs before.

        Each transaction with state commits offsets too. So if there are none, somebody has deleted
        them, or the brokers have (`offsets.retention.minutes`). From the beginning, the task would
        count again what its state already includes.
        """
        replica = self._replica
        former = [(topic, replica.task.partition) for topic in replica.former_inputs]
        if former and reader.committed(former, COORDINATOR_TIMEOUT_S):
            return
        raise NonRetriableError(
            f"group {self._group} has no offset of {', '.join(replica.in_topics)} partition "
            f"{replica.task.partition}, but the task has state: its records would be counted "
            f'twice. {GO_ON}; docs/how-to/troubleshoot.md, "Offsets are gone"'
        )

    @property
    def _group(self) -> str:
        return self._context.config.topic_names.consumer_group(self._replica.task.processor)


def require_not_rewound(memory: TaskMemory, committed: Mapping[Partition, int]) -> None:
    """Raise `TransactionFailedError` if a committed offset has gone back; else remember them all.

    A group coordinator that is elected, deposed and elected again while it loads offsets answers
    from those that it has loaded so far (seen with Kafka 4.2). Starting there would repeat records.
    """
    for partition, known in memory.committed.items():
        found = committed.get(partition)
        if found is None or found < known:
            topic, number = partition
            raise TransactionFailedError(
                f"the committed offset of {topic}[{number}] has gone from {known} back to "
                f"{found}: the broker has not loaded it yet, or has lost it. "
                "If it was set back on purpose, start this TaskManager again"
            )
    memory.committed.update(committed)


def refresh_failed(replica: ProcessorReplica, context: TaskContext, memory: TaskMemory) -> None:
    """Commit the offsets of a FAILED task again, before the brokers forget them.

    Raises `EngineError`.
    """
    names, clients = context.config.topic_names, context.clients
    partitions = [(topic, replica.task.partition) for topic in replica.in_topics]
    with (
        closing(clients.producer(names.transactional_id(replica.task), {})) as producer,
        closing(clients.reader(names.consumer_group(replica.task.processor))) as reader,
    ):
        producer.fence(COORDINATOR_TIMEOUT_S)
        proof = context.config.topic_names.coordinator_proof
        positions = reader.committed(partitions, COORDINATOR_TIMEOUT_S, proof)
        require_not_rewound(memory, offsets_of(positions))
        if positions:
            producer.begin()
            producer.commit(positions, reader.group_metadata)
