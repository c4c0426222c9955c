"""Brings a savepoint back into a job: its topics are made anew, and filled from the files."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from rich.table import Table

from admin.savepoints.job_stop import JobStop, Say
from admin.savepoints.manifest import (
    Manifest,
    SavedInput,
    SavedPosition,
    SavedStore,
    Sources,
    pipeline_file,
    read_manifest,
)
from admin.savepoints.record_files import Records, check_file, read_records
from admin.savepoints.sharding import (
    check_keys,
    check_spread,
    require_empty,
    spread_position,
    with_parallelism,
)
from common.clock import wall_clock_ms
from common.config import Config
from common.deployment import PipelineVersion, Stop, is_same
from common.errors import ConfigError, EngineError, UnavailableError
from common.kafka.admin import Admin
from common.kafka.clients import Partition
from common.kafka.committed import Committed
from common.kafka.data import PartitionReader
from common.kafka.moving import RecordMover
from common.kafka.task_producer import TaskProducer
from common.pipeline import Pipeline
from common.record_batch import OutputRecord
from common.suggest import counted
from common.topics import control_topics
from jobmanager.deploy import Proposal, require_no_stop, who
from jobmanager.partitions import with_partitions
from jobmanager.prepare import prepared
from operations.job import read_deployment
from streams.backfill.partitions import partitions_of

_TIMEOUT_S = 60
_LOOK_S = 0.2
_MOST_RECORDS = 10_000
_MOST_BYTES = 16_000_000
_FIRST_MS = 1
"""librdkafka takes 0 for the current time."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a processor begins in a source: the offset, and that of the savepoint.

    `lost` says how many offsets were deleted in between, by the topic's retention.
    """

    processor: str
    place: Partition
    saved: Committed
    offset: int
    lost: int = 0


@dataclass(slots=True)
class RestorePlan:
    """What a restore would do; `losses` are sentences, which need consent."""

    stores: list[tuple[SavedStore, str, int]] = field(default_factory=list)
    """Saved stores with the topic to fill, and the number of its partitions."""
    arcs: list[tuple[SavedInput, str, int]] = field(default_factory=list)
    """The same for arcs."""
    begins: list[Begin] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """Stores that begin empty, as `Processor.store`."""
    losses: list[str] = field(default_factory=list)


class Restore:
    """A restore of a savepoint into a job, not done yet."""

    def __init__(
        self,
        config: Config,
        admin: Admin,
        folder: Path,
        proposal: Proposal,
        sources: Sources | None = None,
        by_key: Collection[str] = (),
    ) -> None:
        """Find out what is to be done to have a pipeline run with the savepoint's state.

        Raises `ConfigError` if that is not possible, and changes nothing.
        """
        self._config = config
        self._admin = admin
        self._folder = folder
        self._pipeline = proposal.pipeline
        self._manifest: Manifest = read_manifest(folder)
        self._former = self._manifest.pipeline_version().pipeline
        self._sources = sources
        self._by_key = by_key
        deployment = read_deployment(config, admin)
        wish = deployment.wish
        self._stop: Stop | None = None if wish is None else wish.stop
        # A restore that was interrupted may be followed by one of any savepoint.
        stop = self._stop
        if stop is not None and stop.purpose == "savepoint" and stop.token != self._manifest.token:
            require_no_stop(wish)
        if wish is not None and wish.next is not None:
            raise ConfigError(
                f"version {wish.next} of the pipeline is to come: wait for it, see "
                "`pipeline versions`"
            )
        self._current = deployment.current
        self._version = self._find_version(proposal, deployment.numbers)
        self.plan = RestorePlan()
        self._plan_stores()
        self._plan_inputs()

    def _find_version(self, proposal: Proposal, numbers: list[int]) -> PipelineVersion:
        current = self._current
        if current is not None and is_same(current.pipeline, proposal.pipeline):
            return current
        number = max(numbers, default=0) + 1
        return PipelineVersion(number, proposal.pipeline, proposal.text, wall_clock_ms(), who())

    def _plan_stores(self) -> None:
        plan, target = self.plan, self._pipeline
        saved = {(each.processor, each.store): each for each in self._manifest.stores}
        for processor in target.processors:
            count = target.task_count(processor)
            for name, topic in target.state_topics(processor).items():
                found = saved.pop((processor.id, name), None)
                if found is None:
                    plan.empty.append(f"{processor.id}.{name}")
                    continue
                plan.stores.append((found, topic, count))
        stateful = {each.processor for each in self._manifest.stores if each.partitions}
        check_spread(self._former, target, stateful, self._by_key)
        for processor_id, name in saved:
            plan.losses.append(
                f'the state of the store "{name}" of "{processor_id}" is left out: the pipeline '
                "has no such store"
            )

    def _plan_inputs(self) -> None:
        target, arcs = self._pipeline, self._pipeline.arcs
        topics = {
            (processor.id, name): topic
            for processor in target.processors
            for name, topic in zip(processor.from_, target.in_topics(processor), strict=True)
        }
        for saved in self._manifest.inputs:
            topic = topics.get((saved.processor, saved.name))
            records = sum(part.records for part in saved.left)
            if topic is None or (topic in arcs) != saved.is_arc:
                if records:
                    self.plan.losses.append(
                        f'"{saved.processor}" does not read {saved.topic} in this pipeline, so '
                        f"what waits in it is left out: {counted(records, 'record')}"
                    )
            elif saved.is_arc:
                count = target.partitions_of(topic)
                if count != self._former.partitions_of(self._former_topic(saved)):
                    require_empty(saved)
                self.plan.arcs.append((saved, topic, count))
            else:
                self.plan.begins += self._begins(saved, topic)

    def _begins(self, saved: SavedInput, topic: str) -> Iterator[Begin]:
        count = self._admin.partition_counts([topic]).get(topic, 0)
        is_same_topic = count > 0 and self._admin.topic_ids([topic])[topic] == saved.topic_id
        how = Sources.OFFSETS if is_same_topic else self._sources
        if how is None and saved.positions:
            raise ConfigError(
                f'"{saved.processor}" has read topic {saved.topic}, and {topic} here is another '
                "one: say where to begin in it by --sources (offsets, time, earliest or latest)"
            )
        places: list[Partition] = [(topic, number) for number in range(count)]
        oldest, ends = self._admin.oldest_offsets(places), self._admin.stable_ends(places)
        for position in saved.positions:
            place = (topic, position.partition)
            if place not in ends:
                raise ConfigError(
                    f"{topic} has {counted(count, 'partition')}, and the savepoint's topic had more"
                )
            wanted = self._wanted(how, position, place, oldest[place], ends[place])
            if wanted > ends[place]:
                raise ConfigError(
                    f"{topic}[{position.partition}] ends at offset {ends[place]}, before offset "
                    f"{wanted} of the savepoint: its records are gone, or it is another topic"
                )
            at = max(wanted, oldest[place])
            if at > wanted:
                self.plan.losses.append(
                    f"{counted(at - wanted, 'offset')} that followed in {topic}"
                    f"[{position.partition}] were deleted since"
                )
            yield Begin(saved.processor, place, position.committed, at, at - wanted)

    def _wanted(
        self, how: Sources | None, position: SavedPosition, place: Partition, oldest: int, end: int
    ) -> int:
        match how:
            case Sources.EARLIEST:
                return oldest
            case Sources.LATEST:
                return end
            case Sources.TIME if position.committed.time_ms >= 0:
                after_ms = position.committed.time_ms + 1
                found = self._admin.offsets_at([place], after_ms)[place]
                return end if found is None else found
            case Sources.TIME:
                return oldest
        return position.offset

    def _former_count(self, processor_id: str) -> int:
        return self._former.task_count(self._former.processor(processor_id))

    def _former_topic(self, saved: SavedInput) -> str:
        processor = self._former.processor(saved.processor)
        return self._former.in_topics(processor)[processor.from_.index(saved.name)]

    def require_new_job(self) -> None:
        """Raise `ConfigError` if the job has a pipeline, unless a fork of it was interrupted."""
        if self._current is not None and self._stop is None:
            raise ConfigError(
                f"this job runs version {self._current.number} of a pipeline: a fork needs a "
                "job_name that is new"
            )

    def require_other_sinks(self) -> None:
        """Raise `ConfigError` if both jobs would write to the same sinks."""
        if self._admin.check_broker() != self._manifest.cluster:
            return
        shared = sorted(_sinks(self._former) & _sinks(self._pipeline))
        if shared:
            raise ConfigError(
                f"{', '.join(shared)} would get the results of both jobs: give the fork other "
                "sinks (sink_topic in its config.yaml, or --pipeline), or say --same-sinks"
            )

    def table(self) -> Table:
        """Return what would be done, for the user."""
        table = Table("", "from", "to", "records")
        for store, topic, count in self.plan.stores:
            records = sum(part.records for part in store.partitions)
            table.add_row("state", store.topic, f"{topic} ({count})", f"{records:,}")
        for arc, topic, count in self.plan.arcs:
            records = sum(part.records for part in arc.left)
            table.add_row("waiting", arc.topic, f"{topic} ({count})", f"{records:,}")
        for begin in self.plan.begins:
            topic, number = begin.place
            to = f"{topic}[{number}], offset {begin.offset:,}"
            table.add_row("input", f"{begin.processor}, offset {begin.saved.offset:,}", to, "")
        for store_name in self.plan.empty:
            table.add_row("state", "", store_name, "empty")
        return table

    def check_files(self) -> None:
        """Read all files; raise `ConfigError` if one is damaged, or cannot be spread by key."""
        for topic, part in self._manifest.files():
            check_file(self._folder, topic, part)
        for saved, _, count in self.plan.stores:
            former = self._former_count(saved.processor)
            if former != count:
                check_keys(self._folder, saved, former)

    def carry_out(self, timeout_s: float, say: Say) -> int:
        """Do it, and let the job go on; return the number of the version that runs.

        If it is interrupted, nothing of the job runs until it was repeated. Raises
        `UnavailableError` if Kafka does not do its part, or if the job does not come to rest within
        `timeout_s`.
        """
        try:
            stop = JobStop.of_restore(
                self._config, self._admin, self._manifest.token, self._version, self._stop
            )
            stop.wait(timeout_s, say)
            if self._current is not None:
                stop.fence(self._current.pipeline)
            stop.fence(self._pipeline)
            say("making the topics of the pipeline anew")
            self._renew_topics()
            self._fill(say)
            self._commit()
            stop.end()
        except EngineError as error:
            raise UnavailableError(
                f"the restore is not complete, and nothing runs before: repeat it ({error})"
            ) from error
        return self._version.number

    def _renew_topics(self) -> None:
        admin, pipeline = self._admin, self._pipeline
        own = [
            *pipeline.arcs,
            *(t for each in pipeline.processors for t in pipeline.state_topics(each).values()),
        ]
        existing = [*admin.partition_counts(own)]
        before = admin.topic_ids(existing)
        admin.delete_topics(existing)
        deadline_s = time.monotonic() + _TIMEOUT_S
        while admin.partition_counts(own):
            if time.monotonic() > deadline_s:
                raise UnavailableError("Kafka does not delete the topics: repeat the restore")
            time.sleep(_LOOK_S)
        admin.delete_groups(
            [pipeline.names.consumer_group(each.id) for each in pipeline.processors]
        )
        topics = pipeline.data_topics(self._config.replication_factor)
        admin.ensure_topics((*control_topics(self._config), *topics))
        if any(before.get(name) == id_ for name, id_ in admin.topic_ids(own).items()):
            raise UnavailableError("Kafka still has the former topics: repeat the restore")

    def _fill(self, say: Say) -> None:
        mover = RecordMover(self._config, self._config.topic_names.tool_transactional_id("restore"))
        written = 0
        for records in _chunks(self._records()):
            mover.write(records)
            written += len(records)
        say(f"{counted(written, 'record')} written")

    def _records(self) -> Iterator[OutputRecord]:
        """Yield all records of the savepoint, with the topics and partitions to write them to."""
        for store, topic, count in self.plan.stores:
            spread = self._former_count(store.processor) != count
            for part in store.partitions:
                for records in read_records(self._folder, store.topic, part.partition):
                    places = partitions_of(records.keys, count).tolist() if spread else None
                    yield from _outputs(records, topic, places or repeat(part.partition))
        for arc, topic, _ in self.plan.arcs:
            for part in arc.left:
                for records in read_records(self._folder, arc.topic, part.partition):
                    yield from _outputs(records, topic, repeat(part.partition))

    def _commit(self) -> None:
        """Commit where each processor begins; where nothing was committed, nothing is."""
        positions: dict[str, dict[Partition, Committed]] = {}
        for begin in self.plan.begins:
            at = begin.saved._replace(offset=begin.offset)
            positions.setdefault(begin.processor, {})[begin.place] = at
        for arc, topic, count in self.plan.arcs:
            if count == self._former.partitions_of(self._former_topic(arc)):
                found = {
                    each.partition: each.committed._replace(offset=0) for each in arc.positions
                }
            else:
                found = spread_position(arc, count)
            its = positions.setdefault(arc.processor, {})
            its |= {(topic, number): at for number, at in found.items()}
        names = self._config.topic_names
        id_ = names.tool_transactional_id("restore-positions")
        with closing(TaskProducer(self._config, id_, {})) as producer:
            producer.fence(_TIMEOUT_S)
            for processor, its in positions.items():
                group = names.consumer_group(processor)
                with closing(PartitionReader(self._config, group)) as reader:
                    producer.begin()
                    producer.commit(its, reader.group_metadata)


def restore_of_same_job(
    config: Config, admin: Admin, folder: Path, sources: Sources | None
) -> Restore:
    """Return a restore of a savepoint into the job that it is of.

    Raises `ConfigError` if it is of another job, or does not suit what is there.
    """
    manifest = read_manifest(folder)
    if manifest.job != config.job_name:
        raise ConfigError(
            f"{folder} is of {manifest.job_text}, and this config.yaml has another job_name: "
            "`pipeline savepoint fork` makes another job of it"
        )
    return Restore(config, admin, folder, saved_pipeline(admin, folder, manifest, None), sources)


def fork(
    config: Config,
    admin: Admin,
    folder: Path,
    pipeline: Pipeline,
    text: str,
    sources: Sources | None,
    *,
    same_sinks: bool,
) -> Restore:
    """Return a restore of a savepoint into a job that is new, with a pipeline and its file's text.

    Raises `ConfigError` if the job is not new, or if both jobs would write to the same sinks
    without `same_sinks`.
    """
    manifest = read_manifest(folder)
    if manifest.job == config.job_name:
        raise ConfigError(
            f"{folder} is of the very job of this config.yaml: give the fork another job_name; "
            "`pipeline savepoint restore` brings this job back"
        )
    complete = Proposal(prepared(pipeline, config, admin), text)
    found = Restore(config, admin, folder, complete, sources)
    found.require_new_job()
    if not same_sinks:
        found.require_other_sinks()
    return found


def saved_pipeline(
    admin: Admin, folder: Path, manifest: Manifest, parallelism: int | None
) -> Proposal:
    """Return the pipeline of a savepoint for the job that it is of.

    It has the partition counts that its sources have today, and perhaps another parallelism. Raises
    `ConfigError` if these do not suit each other.
    """
    former = manifest.pipeline_version().pipeline
    pipeline = with_parallelism(former, parallelism or former.parallelism)
    return Proposal(with_partitions(pipeline, admin), pipeline_file(folder).read_text("utf-8"))


def _sinks(pipeline: Pipeline) -> set[str]:
    read = {topic for each in pipeline.processors for topic in pipeline.in_topics(each)}
    written = {topic for each in pipeline.processors for topic in pipeline.out_topics(each)}
    return written - read - pipeline.arcs.keys()


def _outputs(records: Records, topic: str, partitions: Iterable[int]) -> Iterator[OutputRecord]:
    rows = zip(
        records.keys.to_pylist(),
        records.values.to_pylist(),
        partitions,
        records.timestamps.to_pylist(),
        records.headers,
        strict=False,
    )
    for key, value, partition, timestamp, headers in rows:
        yield topic, key, value, partition, max(timestamp, _FIRST_MS), headers


def _chunks(records: Iterable[OutputRecord]) -> Iterator[list[OutputRecord]]:
    """Split records into parts that fit into a transaction."""
    some: list[OutputRecord] = []
    size = 0
    for record in records:
        some.append(record)
        size += len(record[1] or b"") + len(record[2] or b"")
        if len(some) == _MOST_RECORDS or size >= _MOST_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
