"""Sets the committed offsets of processors that rest, and clears their state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.proven_ends import settled_ends
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.deployment.desired_state import Wish, require_no_stop
from kafka_pipeline.deployment.job import Chosen, choose, connected, read_deployment
from kafka_pipeline.operations.cluster_watcher import read_status
from kafka_pipeline.operations.renewal import renew_topics
from kafka_pipeline.operations.starts import AtOffset, Earliest, Start, starts

_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Shift:
    """So many offsets after the committed one, or before it if `by` is negative."""

    by: int


Target = Start | Shift


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Which inputs of the processors are meant; all of them if both are empty."""

    topics: Collection[str] = ()
    partitions: Collection[int] = ()

    def has(self, partition: Partition) -> bool:
        """Whether a partition is meant."""
        topic, number = partition
        return (not self.topics or topic in self.topics) and (
            not self.partitions or number in self.partitions
        )

    @property
    def are_all(self) -> bool:
        """Whether no input is left out."""
        return not self.topics and not self.partitions


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A committed offset that is to change; `before` is None if nothing was ever committed."""

    processor: str
    partition: Partition
    before: Committed | None
    offset: int


class Reset:
    """A reset of some processors of the pipeline that the job runs, not done yet."""

    def __init__(
        self, config: Config, processors: Sequence[str], target: Target, inputs: Inputs
    ) -> None:
        """Find out what would change.

        Raises `ConfigError` if there is no such processor or input, if its tasks may run, or while
        a savepoint of the job is made or restored, and `UnavailableError` if Kafka does not answer,
        or if a leader that is probably cut off does.
        """
        self._config = config
        self._admin = connected(config)
        deployment = read_deployment(config, self._admin)
        chosen = _whole(choose(deployment, processors))
        current, wish = deployment.current, deployment.wish
        assert current is not None
        assert wish is not None
        self._pipeline = current.pipeline
        # A savepoint that is made would have half of it, and a restore would undo it.
        require_no_stop(wish)
        _require_rest(read_status(config), wish, chosen)
        self._replicas = [each for each in replicas(current.pipeline) if each.name in chosen]
        self.state_topics = tuple(
            topic
            for id_ in chosen
            for topic in current.pipeline.state_topics(current.pipeline.processor(id_)).values()
        )
        """The topics that keep the state of the processors."""
        self._groups: dict[str, Any] = {}
        """The metadata of the processors' groups, with which offsets are committed."""
        try:
            moves = [*self._find(target, inputs)]
        except EngineError as error:
            raise UnavailableError(f"the offsets cannot be found: {error}") from error
        self._is_shift = isinstance(target, Shift)
        self.moves = _left(moves) if self._is_shift else moves
        """The offsets that are to change, in the order of the file."""
        if not self.moves:
            raise ConfigError("none of the processors reads such a topic or partition")

    def _find(self, target: Target, inputs: Inputs) -> Iterator[OffsetMove]:
        names = self._config.topic_names
        for id_, of_processor in groupby(self._replicas, key=attrgetter("name")):
            places = [p for replica in of_processor for p in _places(replica) if inputs.has(p)]
            with closing(PartitionReader(self._config, names.consumer_group(id_))) as reader:
                committed = reader.committed(places, _TIMEOUT_S, names.coordinator_proof)
                self._groups[id_] = reader.group_metadata
            offsets = self._offsets(target, places, committed)
            for place in places:
                if place in offsets:
                    yield OffsetMove(id_, place, committed.get(place), offsets[place])

    def _offsets(
        self, target: Target, places: Sequence[Partition], committed: Mapping[Partition, Committed]
    ) -> Mapping[Partition, int]:
        ends = self._ends(places)
        if isinstance(target, Shift):
            oldest = self._admin.oldest_offsets(places)
            found = {
                place: min(max(at.offset + target.by, oldest[place]), ends[place])
                for place, at in committed.items()
            }
        else:
            found = starts(target, self._admin, ends)
        for place, offset in found.items():
            is_sure = isinstance(target, Earliest) or target == AtOffset(offset)
            if offset == ends[place] and place in committed and not is_sure:
                _require_reached(place, ends[place], committed[place])
        return found

    def _ends(self, places: Sequence[Partition]) -> dict[Partition, int]:
        """Return the ends of inputs, those of arcs proven by a write.

        Records between an end of an arc that is too early and the real one would be processed, and
        once more when those in front of the arc are reset as well.
        """
        arcs = [place for place in places if place[0] in self._pipeline.arcs]
        id_ = self._config.topic_names.tool_transactional_id("reset")
        proven = settled_ends(self._config, self._admin, id_, arcs)
        return proven | self._admin.stable_ends([each for each in places if each not in proven])

    def carry_out(self, *, clears_state: bool) -> None:
        """Commit the new offsets, after all state was deleted if `clears_state`.

        It can be repeated if it was interrupted: no task begins with half of a state, or with an
        offset that is still to be shifted, and none is shifted twice. Raises `UnavailableError` if
        Kafka does not do it, or if a task has started meanwhile.
        """
        names = self._config.topic_names
        try:
            with ExitStack() as stack:
                producers = list[TaskProducer]()
                for replica in self._replicas:
                    id_ = names.transactional_id(replica.task)
                    producer = TaskProducer(self._config, id_, {})
                    stack.callback(producer.close)
                    # What a task has left open could set offsets afterwards.
                    producer.fence(_TIMEOUT_S)
                    producers.append(producer)
                if clears_state or self._is_shift:
                    self._commit(producers, _marked)
                if clears_state:
                    self._clear_state()
                self._commit(producers, _moved)
        except EngineError as error:
            raise UnavailableError(f"the reset is not complete, so repeat it: {error}") from error

    def _commit(
        self, producers: Sequence[TaskProducer], position: Callable[[OffsetMove], Committed]
    ) -> None:
        """Commit a position for each move, as the task that it is about."""
        moves = {(move.processor, move.partition): move for move in self.moves}
        for replica, producer in zip(self._replicas, producers, strict=True):
            found = {
                place: position(moves[replica.name, place])
                for place in _places(replica)
                if (replica.name, place) in moves
            }
            if found:
                producer.begin()
                producer.commit(found, self._groups[replica.name])

    def _clear_state(self) -> None:
        """Delete the state topics, and make them again. Stores know them by their ids."""
        specs = self._pipeline.data_topics(self._config.replication_factor)
        own = [spec for spec in specs if spec.name in self.state_topics]
        renew_topics(self._admin, self.state_topics, own, "reset")


def _whole(chosen: Chosen) -> Sequence[str]:
    if chosen.tasks:
        raise ConfigError(
            f"{chosen.tasks[0]} is a task: give the id of its processor, and --partition "
            f"{chosen.tasks[0].partition}"
        )
    return chosen.processors


def _require_reached(place: Partition, end: int, committed: Committed) -> None:
    """Raise `UnavailableError` if a partition ends before a committed offset.

    A leader that is cut off from the other brokers may say so. Nothing is written to prove the end,
    since the topic may be another team's. An end that is too early, but not before the committed
    offset, repeats nothing.
    """
    if end < committed.offset:
        topic, number = place
        raise UnavailableError(
            f"{topic}[{number}] reportedly ends at offset {end}, before the committed offset "
            f"{committed.offset}: perhaps the broker that reports this is cut off from the others, "
            "so try again later. If the topic was made again, use --to-earliest or --to-offset"
        )


def _places(replica: ProcessorReplica) -> list[Partition]:
    return [(topic, replica.task.partition) for topic in replica.in_topics]


def _left(moves: Sequence[OffsetMove]) -> Sequence[OffsetMove]:
    """Return what an interrupted shift has left: it marks all offsets, and moves them in order."""
    marked = [move.before is not None and move.before.is_being_reset for move in moves]
    return moves[marked.index(True) :] if any(marked) else moves


def _moved(move: OffsetMove) -> Committed:
    """Return the new position; what was done to the records before it still counts."""
    before = move.before or Committed(0)
    moved = before.moved(move.offset)
    return moved._replace(time_ms=Committed(0).time_ms, is_being_reset=False)


def _marked(move: OffsetMove) -> Committed:
    """Return the former position, with which no task begins."""
    return (move.before or Committed(move.offset))._replace(is_being_reset=True)


def _require_rest(status: ClusterStatus, wish: Wish, processors: Collection[str]) -> None:
    """Raise `ConfigError` unless no TaskManager runs the processors, or will."""
    is_off = not status.job_manager.is_up and not status.managers_up
    running = sorted(
        str(info.task)
        for info in (*status.tasks, *status.standbys)
        if info.task.processor in processors and info.status is not None
    )
    asked = [each for each in processors if not wish.drains and each not in wish.paused]
    if running or (asked and not is_off):
        what = f"{running[0]} runs" if running else f"{asked[0]} is to run"
        raise ConfigError(
            f"{what}: pause it first (`pipeline pause`), or stop all daemons of the job"
        )
