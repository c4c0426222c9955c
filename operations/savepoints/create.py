"""Makes a savepoint: copies what a job knows into files, at one moment at which nothing runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, EngineError, PipelineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_from
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.proven_ends import settled_ends
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.desired_state import version_to_json
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.operations.savepoints.job_stop import JobStop, Say, require_may_stop
from kafka_pipeline.operations.savepoints.manifest import (
    FORMAT,
    Manifest,
    SavedInput,
    SavedPartition,
    SavedPosition,
    SavedStore,
    write_manifest,
)
from kafka_pipeline.operations.savepoints.record_files import RecordFile

Check: TypeAlias = Callable[[Path, Sequence[SavedStore]], None]
"""Gets the folder of a savepoint that is not complete yet, and the state in it."""

_REQUEST_TIMEOUT_S = 60


class TopicCopy:
    """The files of a topic, which grow until it stands still."""

    def __init__(self, config: Config, folder: Path, topic: str) -> None:
        self._config = config
        self._folder = folder
        self._topic = topic
        self._at: dict[Partition, int] = {}
        self._files: dict[int, RecordFile] = {}

    def advance(self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
        """Copy from where the copy is, at first `starts`, up to these ends."""
        at = {place: self._at[place] if place in self._at else starts[place] for place in ends}
        for batch in read_from(self._config, at, ends):
            place = batch.topic, batch.partition
            count = batch.count_before(ends[place])
            if count:
                self._file(batch.partition).write(batch.part(0, count))
        self._at = dict(ends)

    def partitions(self) -> tuple[SavedPartition, ...]:
        """Return the files as they are now: they can be read, and will grow."""
        return tuple(self._files[number].so_far() for number in sorted(self._files))

    def finish(self) -> tuple[SavedPartition, ...]:
        """Complete the files; partitions without records have none."""
        return tuple(self._files[number].finish() for number in sorted(self._files))

    def close(self) -> None:
        """Close the files, complete or not."""
        for file in self._files.values():
            file.close()

    def _file(self, partition: int) -> RecordFile:
        if partition not in self._files:
            self._files[partition] = RecordFile(self._folder, self._topic, partition)
        return self._files[partition]


class Creation:
    """A savepoint in the making."""

    def __init__(self, config: Config, admin: Admin, folder: Path, say: Say) -> None:
        """Raises `ConfigError` if the folder exists, or if the job cannot be saved now."""
        self._config = config
        self._admin = admin
        self._folder = folder
        self._say = say
        deployment = read_deployment(config, admin)
        if deployment.current is None or deployment.wish is None:
            raise ConfigError("this job has no pipeline yet: there is nothing to save")
        require_may_stop(deployment.wish)
        if folder.exists():
            raise ConfigError(
                f"{folder} exists already: move or delete it, or give the savepoint another place"
            )
        # Next to the folder, so that the last step is to rename it.
        self._part = folder.with_name(f".{folder.name}.part")
        self.version = deployment.current

    def carry_out(
        self,
        *,
        drains: bool,
        timeout_s: float,
        goes_on: bool = True,
        check: Check = lambda folder, stores: None,
        at_rest: Callable[[], None] = lambda: None,
    ) -> Manifest:
        """Make the savepoint; the job goes on afterwards, unless its stop is still needed.

        Most of the state is copied while the job runs, and then `check` gets it, which may raise
        `ConfigError`. `at_rest` is called while nothing runs. Raises `UnavailableError` if Kafka or
        the disk does not do its part, or if the job does not come to rest within `timeout_s`. In
        both cases the job goes on, and there is no savepoint.
        """
        version = self.version
        with ExitStack() as stack:
            try:
                shutil.rmtree(self._part, ignore_errors=True)
                self._part.mkdir(0o700, parents=True)
                copies = self._copies(version.pipeline, stack)
                check(self._part, _saved(copies, TopicCopy.partitions))
                manifest = self._save(
                    copies, stack, at_rest, drains=drains, timeout_s=timeout_s, goes_on=goes_on
                )
                write_manifest(self._part, manifest, version.text)
                self._part.rename(self._folder)
            except OSError as error:
                raise UnavailableError(f"the savepoint cannot be written: {error}") from error
            except EngineError as error:
                raise UnavailableError(f"the savepoint cannot be made: {error}") from error
            finally:
                shutil.rmtree(self._part, ignore_errors=True)
        return manifest

    def _copies(self, pipeline: Pipeline, stack: ExitStack) -> Copies:
        """Return copies of the state topics as they are now."""
        copies = [(store, self._copy(stack, store.topic)) for store in _stores(pipeline)]
        self._say("copying state while the job runs")
        for store, copy in copies:
            oldest = self._admin.oldest_offsets(store.places)
            copy.advance(oldest, self._admin.stable_ends(store.places))
        return copies

    def _save(
        self,
        copies: Copies,
        stack: ExitStack,
        at_rest: Callable[[], None],
        *,
        drains: bool,
        timeout_s: float,
        goes_on: bool,
    ) -> Manifest:
        version, pipeline = self.version, self.version.pipeline
        began_ms = wall_clock_ms()
        stop = JobStop.begin(self._config, self._admin, drains=drains)
        try:
            stop.wait(timeout_s, self._say)
            stop.fence(pipeline)
            self._say("nothing runs: copying the rest")
            at_rest()
            arcs = [place for topic in pipeline.arcs for place in pipeline.places(topic)]
            places = [*(place for store, _ in copies for place in store.places), *arcs]
            id_ = self._config.topic_names.tool_transactional_id("savepoint")
            ends = settled_ends(self._config, self._admin, id_, places)
            for store, copy in copies:
                copy.advance({}, {place: ends[place] for place in store.places})
            stores = _saved(copies, TopicCopy.finish)
            inputs = tuple(self._inputs(stack, pipeline, ends))
        except BaseException:
            try:
                stop.end()
            except PipelineError:
                self._say("the job may still be stopped: `pipeline resume` lets it continue")
            raise
        if goes_on:
            stop.end()
        else:
            stop.require()
        return Manifest(
            format=FORMAT,
            job=self._config.job_name,
            cluster=self._admin.check_broker(),
            made_at_ms=began_ms,
            made_by=stop.stop.by,
            stopped_ms=max(wall_clock_ms() - began_ms, 0),
            token=stop.stop.token,
            version=version_to_json(version),
            stores=stores,
            inputs=inputs,
        )

    def _inputs(
        self, stack: ExitStack, pipeline: Pipeline, ends: Mapping[Partition, int]
    ) -> Iterator[SavedInput]:
        arcs = pipeline.arcs
        topics = {topic for each in pipeline.processors for topic in pipeline.in_topics(each)}
        ids = self._admin.topic_ids(sorted(topics))
        for processor in pipeline.processors:
            for name, topic in pipeline.inputs(processor).items():
                places = pipeline.places(topic)
                committed = self._committed(pipeline.names.consumer_group(processor.id), places)
                left: tuple[SavedPartition, ...] = ()
                if topic in arcs:
                    copy = self._copy(stack, topic)
                    oldest = self._admin.oldest_offsets(places)
                    at = {p: max(committed.get(p, Committed(0)).offset, oldest[p]) for p in places}
                    copy.advance(at, {place: ends[place] for place in places})
                    left = copy.finish()
                yield SavedInput(
                    processor=processor.id,
                    name=name,
                    topic=topic,
                    topic_id=ids[topic],
                    is_arc=topic in arcs,
                    positions=tuple(
                        SavedPosition(partition=number, offset=at.offset, metadata=at.metadata)
                        for (_, number), at in sorted(committed.items())
                    ),
                    left=left,
                )

    def _committed(self, group: str, places: Sequence[Partition]) -> dict[Partition, Committed]:
        with closing(PartitionReader(self._config, group)) as reader:
            proof = self._config.topic_names.coordinator_proof
            return reader.committed(places, _REQUEST_TIMEOUT_S, proof)

    def _copy(self, stack: ExitStack, topic: str) -> TopicCopy:
        copy = TopicCopy(self._config, self._part, topic)
        stack.callback(copy.close)
        return copy


@dataclass(frozen=True, slots=True)
class _Store:
    """A store, its state topic, and the topic's partitions."""

    processor: str
    name: str
    topic: str
    places: list[Partition]


Copies: TypeAlias = list[tuple[_Store, TopicCopy]]


def _saved(
    copies: Copies, partitions: Callable[[TopicCopy], tuple[SavedPartition, ...]]
) -> tuple[SavedStore, ...]:
    return tuple(
        SavedStore(
            processor=store.processor,
            store=store.name,
            topic=store.topic,
            partitions=partitions(copy),
        )
        for store, copy in copies
    )


def _stores(pipeline: Pipeline) -> list[_Store]:
    return [
        _Store(each.id, name, topic, [(topic, n) for n in range(pipeline.task_count(each))])
        for each in pipeline.processors
        for name, topic in pipeline.state_topics(each).items()
    ]
