"""Brings a savepoint back into a job: its topics are made anew, and filled from the files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.moving import RecordMover
from kafka_pipeline.common.kafka.proven_ends import proven_ends
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.common.record_batch import OutputRecord, parts
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.deploy import Proposal, new_version
from kafka_pipeline.deployment.desired_state import (
    StopOrder,
    is_same,
    require_no_next,
    require_no_stop,
)
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.plan import NOTHING_LOST, Lost
from kafka_pipeline.deployment.prepare import prepared, with_partitions, without_gone_topics
from kafka_pipeline.operations.renewal import renew_topics
from kafka_pipeline.operations.savepoints.job_stop import JobStop, Say
from kafka_pipeline.operations.savepoints.manifest import (
    Manifest,
    SavedPartition,
    Sources,
    pipeline_file,
    read_manifest,
)
from kafka_pipeline.operations.savepoints.record_files import check_file, read_records
from kafka_pipeline.operations.savepoints.restore_plan import ArcFill, RestorePlan
from kafka_pipeline.operations.savepoints.saved_state import Spreads
from kafka_pipeline.operations.savepoints.sharding import spread_position, with_parallelism
from kafka_pipeline.streams.rescaling.tasks import Tasks

_TIMEOUT_S = 60
_MOST_RECORDS = 10_000
_FIRST_MS = 1
"""librdkafka takes 0 for the current time."""


class Restore:
    """A restore of a savepoint into a job, not done yet."""

    def __init__(
        self,
        config: Config,
        admin: Admin,
        folder: Path,
        proposal: Proposal,
        sources: Sources | None = None,
        *,
        by_key: Collection[str] = (),
        in_place: bool = False,
        lost: Lost = NOTHING_LOST,
        renewed: Collection[str] = (),
    ) -> None:
        """Find out what is to be done to have a pipeline run with the savepoint's state.

        If `in_place`, nothing of the job has run since the savepoint, so topics that stay the same
        are left as they are, but for those of processors that are `renewed`: their state in the
        savepoint is not what they had. `by_key` are processors whose stores have the keys of
        records. What is `lost` begins empty.
        Raises `ConfigError` if that is not possible, and changes nothing.
        """
        self._config = config
        self._admin = admin
        self._folder = folder
        self._pipeline = proposal.pipeline
        self._manifest: Manifest = read_manifest(folder)
        self._former = self._manifest.pipeline_version().pipeline
        self._in_place = in_place
        deployment = read_deployment(config, admin)
        wish = deployment.wish
        self._stop: StopOrder | None = None if wish is None else wish.stop
        # A restore that was interrupted may be followed by one of any savepoint.
        stop = self._stop
        if stop is not None and stop.purpose == "savepoint" and stop.token != self._manifest.token:
            require_no_stop(wish)
        if wish is not None:
            require_no_next(wish)
        self._current = version = deployment.current
        if version is None or not is_same(version.pipeline, proposal.pipeline):
            version = new_version(deployment, proposal)
        self._version = version
        self._former_versions = deployment.pipelines
        self._spreads = Spreads(folder, self._former, self._pipeline, lost)
        self.plan = RestorePlan(
            config,
            admin,
            self._manifest,
            self._pipeline,
            sources,
            by_key=by_key,
            in_place=in_place,
            renewed=renewed,
            spreads=self._spreads,
        )

    def require_new_job(self) -> None:
        """Raise `ConfigError` if the job has a pipeline, unless a fork of it was interrupted."""
        if self._current is not None and self._stop is None:
            raise ConfigError(
                f"this job runs version {self._current.number} of a pipeline: a fork needs a "
                "new job_name"
            )

    def require_other_sinks(self) -> None:
        """Raise `ConfigError` if both jobs would write to the same sinks or tables.

        Tables are where they are, whatever the cluster. Topics that only a function knows may be
        any.
        """
        former, tables = _tables(self._former), _tables(self._pipeline)
        shared = sorted({table for place, table in tables.items() if place in former})
        if self._admin.check_broker() == self._manifest.cluster:
            shared += sorted(_sinks(self._former) & _sinks(self._pipeline))
            for processor in self._pipeline.processors:
                if processor.chooses_topics:
                    raise ConfigError(
                        f"a function of {processor.id} chooses the topics of results, so both jobs "
                        "may write to the same ones: name them by `topics`, where the function is "
                        "given, or say --same-sinks"
                    )
        if shared:
            raise ConfigError(
                f"{', '.join(shared)} would get the results of both jobs: give the fork other "
                "sinks (sink_topic in its config.yaml, or --pipeline), or say --same-sinks"
            )

    def check_files(self) -> None:
        """Read all files; raise `ConfigError` if one is damaged, or cannot be spread by key.

        Raises it also for records that wait for a table, if that may have them already.
        """
        for topic, part in self._manifest.files():
            check_file(self._folder, topic, part)
        self._spreads.check(self._manifest.stores)
        self._spreads.check_left(self._manifest.inputs)
        for arc in self.plan.arcs:
            if arc.spread:
                list(self._spread_left(arc))
            self._require_not_in_table(arc)

    def _require_not_in_table(self, arc: ArcFill) -> None:
        """Raise `ConfigError` if a table may have rows of what is put into another topic.

        A task that was killed has perhaps written rows, and not committed their offsets. It knows
        them by their offsets in the topic that they came from.
        """
        writes_table = self._pipeline.processor(arc.reader).spec.writes_outside
        if self._in_place and arc.saved.left and writes_table:
            raise ConfigError(
                f"records wait in {arc.saved.topic} for {arc.reader}, and some of them may be in "
                "its table: they would be written once more. Let the job run until they are "
                "processed, and then repeat the command"
            )

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
            # Of all versions: which one ran before an interrupted restore is not known any more.
            stop.fence(*self._former_versions, self._pipeline)
            say("creating topics again")
            self._renew_topics()
            self._fill(say)
            self._commit()
            stop.end()
        except EngineError as error:
            raise UnavailableError(
                f"the restore is not complete, and nothing runs until it is: repeat it ({error})"
            ) from error
        except KeyboardInterrupt:
            say("the restore is not complete, and nothing runs until it is: repeat it")
            raise
        return self._version.number

    def _renew_topics(self) -> None:
        pipeline = self._pipeline
        own = [
            *pipeline.arcs,
            *(t for each in pipeline.processors for t in pipeline.state_topics(each).values()),
        ]
        if self._in_place:
            own = [*self.plan.renewed, *(each.topic for each in self.plan.stores)]
            own += [each.topic for each in self.plan.arcs]
        groups = map(pipeline.names.consumer_group, sorted(self.plan.moved))
        self._admin.delete_groups([*groups])
        topics = pipeline.data_topics(self._config.replication_factor)
        specs = (*control_topics(self._config), *topics)
        renew_topics(self._admin, own, specs, "restore")

    def _fill(self, say: Say) -> None:
        mover = RecordMover(self._config, self._config.topic_names.tool_transactional_id("restore"))
        written = 0
        for records in parts(self._records(), _MOST_RECORDS):
            mover.write(records)
            written += len(records)
        say(f"{counted(written, 'record')} written")

    def _records(self) -> Iterator[OutputRecord]:
        """Yield all records of the savepoint, with the topics and partitions to write them to."""
        for topic, key, value, partition, timestamp, headers in self._saved_records():
            yield topic, key, value, partition, max(timestamp, _FIRST_MS), headers

    def _saved_records(self) -> Iterator[OutputRecord]:
        for store in self.plan.stores:
            saved = store.saved
            if store.spread:
                spread = self._spreads.of(saved.processor, self._manifest.stores)
                yield from ((store.topic, *row) for row in spread.rows(saved.store))
            else:
                yield from self._as_they_are(saved.topic, saved.partitions, store.topic)
        for arc in self.plan.arcs:
            if arc.spread:
                yield from self._spread_left(arc)
            else:
                yield from self._as_they_are(arc.saved.topic, arc.saved.left, arc.topic)

    def _as_they_are(
        self, former: str, saved: Sequence[SavedPartition], topic: str
    ) -> Iterator[OutputRecord]:
        for part in saved:
            for records in read_records(self._folder, former, part.partition):
                for key, value, timestamp, headers in records.rows():
                    yield topic, key, value, part.partition, timestamp, headers

    def _spread_left(self, arc: ArcFill) -> Iterator[OutputRecord]:
        """Yield what waits in an arc with another number of partitions."""
        tasks = self._tasks(arc)
        for part in arc.saved.left:
            yield from self._spreads.left(arc.saved, part.partition, arc.topic, tasks)

    def _tasks(self, arc: ArcFill) -> Tasks:
        return Tasks(self._former.partitions_of(arc.saved.topic), arc.count)

    def _commit(self) -> None:
        """Commit where each processor begins; where nothing was committed, nothing is."""
        positions: dict[str, dict[Partition, Committed]] = {}
        for begin in self.plan.begins:
            at = begin.saved.moved(begin.offset)
            positions.setdefault(begin.processor, {})[begin.place] = at
        for arc in self.plan.arcs:
            if arc.spread:
                found = spread_position(arc.saved, self._tasks(arc))
            else:
                saved = arc.saved.positions
                found = {each.partition: each.committed.moved(0) for each in saved}
            its = positions.setdefault(arc.reader, {})
            its |= {(arc.topic, number): at for number, at in found.items()}
        names = self._config.topic_names
        id_ = names.tool_transactional_id("restore-positions")
        before = self.arcs_of_before()
        ends = proven_ends(self._config, id_, before) if before else {}
        for place, processor in before.items():
            positions.setdefault(processor, {})[place] = Committed(ends[place])
        with closing(TaskProducer(self._config, id_, {})) as producer:
            producer.fence(_TIMEOUT_S)
            for processor, its in positions.items():
                group = names.consumer_group(processor)
                with closing(PartitionReader(self._config, group)) as reader:
                    producer.begin()
                    producer.commit(its, reader.group_metadata)

    def arcs_of_before(self) -> dict[Partition, str]:
        """Return partitions of arcs that former versions have left, and the processors that read.

        These begin at the end if a later version brings the arc back. What is in it was processed,
        or is of the time that the restore takes back. How far the processor was is forgotten with
        its group, so it would read all of it again.
        """
        readers = {
            topic: reader
            for former in self._former_versions
            for topic, reader in former.arcs.items()
            if reader in self.plan.moved and topic not in self._pipeline.arcs
        }
        counts = self._admin.partition_counts(readers)
        return {
            (topic, number): readers[topic]
            for topic, count in counts.items()
            for number in range(count)
        }


def restore_of_same_job(
    config: Config, admin: Admin, folder: Path, sources: Sources | None
) -> Restore:
    """Return a restore of a savepoint into the job that it is of.

    Raises `ConfigError` if it is of another job, or does not suit what is there.
    """
    manifest = read_manifest(folder)
    if manifest.job != config.job_name:
        raise ConfigError(
            f"{folder} is a savepoint of {manifest.job_text}, and this config.yaml has another "
            "job_name: `pipeline savepoint fork` makes another job of it"
        )
    return Restore(config, admin, folder, saved_pipeline(admin, folder, manifest), sources)


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
            f"{folder} is a savepoint of the job of this config.yaml: give the fork another "
            "job_name; `pipeline savepoint restore` brings this job back"
        )
    former = manifest.pipeline_version().pipeline
    complete = Proposal(prepared(pipeline, config, admin, former), text)
    found = Restore(config, admin, folder, complete, sources)
    found.require_new_job()
    if not same_sinks:
        found.require_other_sinks()
    return found


def saved_pipeline(admin: Admin, folder: Path, manifest: Manifest) -> Proposal:
    """Return the pipeline of a savepoint for the job that it is of.

    It has the partition counts that its sources have today, and no topics of patterns that are
    gone. Raises `ConfigError` if these do not suit each other.
    """
    former = without_gone_topics(manifest.pipeline_version().pipeline, admin)
    pipeline = with_parallelism(former, former.parallelism)
    internal = {topic: former.partitions_of(topic) for topic in former.uncounted_topics}
    found = with_partitions(pipeline, admin, internal)
    return Proposal(found, pipeline_file(folder).read_text("utf-8"))


def _tables(pipeline: Pipeline) -> dict[tuple[str, ...], str]:
    """Return the tables that a pipeline writes, by their places as the file says them."""
    return {
        (spec.format, spec.path, spec.url, spec.catalog.get("uri", ""), spec.table): (
            f"the table {spec.path or spec.table}"
        )
        for each in pipeline.processors
        if isinstance(spec := each.spec, TableSinkSpec)
    }


def _sinks(pipeline: Pipeline) -> set[str]:
    """Return the topics that hold results, and those by which records come back."""
    written = {topic for each in pipeline.processors for topic in pipeline.out_topics(each)}
    passed_on = {
        topic
        for each in pipeline.processors
        for topic in pipeline.in_topics(each)
        if topic not in pipeline.feedback_topics(each)
    }
    return written - passed_on - pipeline.arcs.keys()
