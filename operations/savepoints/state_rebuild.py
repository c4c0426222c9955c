"""Computes the state of a processor again from its sources, and puts it in place of the old one.

The old version runs on meanwhile. Then the job is drained and stopped, a savepoint is made of it,
and the last records up to the committed offsets are computed. What comes of that is a savepoint of
its own, in the work folder: the new state, and those very offsets. A restore of it is the switch.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import structs
from rich.console import Console

from kafka_pipeline.common.cluster.code_versions import CodeChange, code_changes
from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_range
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.desired_state import PipelineVersion, version_to_json
from kafka_pipeline.operations.cluster_watcher import read_status
from kafka_pipeline.operations.savepoints.change_at_rest import ChangeAtRest
from kafka_pipeline.operations.savepoints.job_stop import Say
from kafka_pipeline.operations.savepoints.manifest import (
    Manifest,
    SavedInput,
    SavedPartition,
    SavedPosition,
    SavedStore,
    is_savepoint,
    read_manifest,
    write_manifest,
)
from kafka_pipeline.operations.savepoints.rebuild_plan import RebuildPlan
from kafka_pipeline.operations.savepoints.record_files import RecordFile
from kafka_pipeline.operations.savepoints.saved_state import FolderState
from kafka_pipeline.operations.times import shown_time
from kafka_pipeline.streams.backfill.rounds import (
    Reach,
    Rounds,
    RoundsPlan,
    Times,
    opened_rounds,
)
from kafka_pipeline.streams.backfill.runner import Jobs, Runner, shown_progress
from kafka_pipeline.streams.backfill.work import translated
from kafka_pipeline.streams.engine.user_files import code_fingerprints
from kafka_pipeline.streams.event_time.step_time import NO_TIME, time_of

_REQUEST_TIMEOUT_S = 60
_FEW_RECORDS = 50_000
"""A rest that is small enough to be computed while the job is stopped."""
_LOOK_S = 1.0
_LAST_OFFSETS = 1_000

Committeds = Mapping[tuple[str, Partition], Committed]
"""Committed positions, by processor and partition."""


class StateRebuild:
    """A rebuild of the state of an entry of pipeline.yaml, not done yet, or interrupted."""

    def __init__(
        self,
        config: Config,
        admin: Admin,
        folder: Path,
        target: Proposal,
        entry: str,
        from_ms: int | None,
        say: Say,
    ) -> None:
        """Find out what is to be done; changes nothing.

        `folder` is where the savepoint of the job as it was is made. `from_ms` is the time of the
        first record to take, in ms since 1970. Raises `ConfigError` if the state cannot be rebuilt.
        """
        self.config = config
        self._admin = admin
        self._folder = folder.absolute()
        # Executors have their own current folder.
        self.work = self._folder.with_name(f"{folder.name}.work")
        self.target = target
        self._from_ms = from_ms
        self.say = say
        self._change = ChangeAtRest(config, admin, self._folder, say)
        if not self._change.is_begun and self._folder.exists():
            raise ConfigError(
                f"{folder} exists already, perhaps as the savepoint of a rebuild that is done: "
                "move or delete it"
            )
        self.plan = RebuildPlan(self._change.before, target.pipeline, entry)
        self._code = code_fingerprints(config.modules, config.python_path)
        self._starts = self._find_starts()

    def lines(self) -> Iterator[str]:
        """Yield what is to be done, as lines for the user."""
        yield f"State computed again: {', '.join(self.plan.processors)}"
        if self.plan.feeders:
            yield f"Run over history for that: {', '.join(self.plan.feeders)}"
        for topic in sorted({topic for _, topic, _ in self.plan.sources()}):
            yield f"  from {topic}, {self._span(topic)}"
        for change in self.code_changes():
            yield f"Other code than here: {change}. Do that once the job has stopped, not before"

    def _span(self, topic: str) -> str:
        if self._from_ms is not None:
            return f"records from {shown_time(self._from_ms)} on"
        oldest = self._admin.oldest_offsets(self.plan.places(topic))
        cut = {place: offset for place, offset in oldest.items() if offset > 0}
        if not cut:
            return "all records"
        first = self._first_time(cut)
        since = "" if first is None else f": the oldest that are left are of {shown_time(first)}"
        return f"which no longer has its first records{since}"

    def _first_time(self, starts: Mapping[Partition, int]) -> int | None:
        """Return the smallest timestamp of the first records of partitions, if there are any."""
        ends = self._admin.stable_ends([*starts])
        found = [
            next(read_range(self.config, *place, start, ends[place]), None)
            for place, start in starts.items()
        ]
        return min((batch.timestamps[0] for batch in found if batch), default=None)

    def carry_out(self, timeout_s: float, jobs: Jobs, console: Console) -> int:
        """Do it, or complete it; return the number of the version that runs then.

        Until the job is stopped, an interruption changes nothing. Raises as
        `ChangeAtRest.carry_out`, and `PipelineError` if the new code rejects a record under
        `on_error: fail`.
        """
        plan = RoundsPlan(
            self.config,
            self.target.pipeline,
            self.plan.stages,
            self.plan.internal,
            {
                "tasks": [each.fingerprint for stage in self.plan.stages for each in stage],
                "code": self._code,
                "from_ms": self._from_ms,
            },
        )
        with translated(), shown_progress(console) as progress:
            runner = Runner(jobs, progress, with_values=self.config.log_record_values)
            with opened_rounds(plan, self.work, self._starts, runner) as rounds:
                if not self._change.is_begun:
                    self._catch_up(rounds)
                state = _State(self, rounds, timeout_s)
                number = self._change.carry_out(self.target, timeout_s, drains=True, state=state)
        shutil.rmtree(self.work, ignore_errors=True)
        return number

    def _catch_up(self, rounds: Rounds) -> None:
        """Compute what the running job has processed, until little is left or it gets no less."""
        before: float = float("inf")
        while True:
            # First, since the job goes on: records after the offsets must not be older.
            reached = self._reached()
            read = rounds.advance(self.reach(rounds.starts, self._committed()), reached)
            if read <= _FEW_RECORDS or read > before / 2:
                return
            before = read

    def _committed(self) -> Committeds:
        found: dict[tuple[str, Partition], Committed] = {}
        for reader in sorted({reader for _, _, reader in self.plan.sources()}):
            topics = sorted({topic for _, topic, its in self.plan.sources() if its == reader})
            places = [place for topic in topics for place in self.plan.places(topic)]
            group = self.config.topic_names.consumer_group(reader)
            with closing(PartitionReader(self.config, group)) as consumer:
                committed = consumer.committed(places, _REQUEST_TIMEOUT_S)
            found |= {(reader, place): at for place, at in committed.items()}
        return found

    def _reached(self) -> Times:
        """Return the times of steps behind other processors, as their state topics have them."""
        found: dict[str, dict[str, list[int]]] = {}
        for processor, store in self.plan.clocks():
            topic = self.plan.state_topic(processor, store)
            places = [(topic, n) for n in range(self.plan.tasks_of(processor))]
            oldest, ends = self._admin.oldest_offsets(places), self._admin.stable_ends(places)
            found.setdefault(processor, {})[store] = [
                self._last_time(place, oldest[place], ends[place]) for place in places
            ]
        return found

    def _last_time(self, place: Partition, oldest: int, end: int) -> int:
        # The topic has one key. Its last record is near the end, unless transactions were aborted.
        for start in (max(oldest, end - _LAST_OFFSETS), oldest):
            values = [
                value
                for batch in read_range(self.config, *place, start, end)
                for value in batch.values
            ]
            if values and values[-1] is not None:
                return time_of(values[-1])
        return NO_TIME

    def reach(self, starts: Reach, committed: Committeds) -> Reach:
        """Return how far to compute: where nothing was committed, not at all."""
        found: dict[str, dict[str, list[int]]] = {}
        for processor, topic, reader in self.plan.sources():
            found.setdefault(processor, {})[topic] = [
                max(committed.get((reader, (topic, number)), Committed(0)).offset, start)
                for number, start in enumerate(starts[processor][topic])
            ]
        return found

    def reached_in(self, savepoint: Manifest) -> Times:
        """Return the times of steps behind other processors at a savepoint of the whole job."""
        files = {
            (each.processor, each.store): (each.topic, {part.partition for part in each.partitions})
            for each in savepoint.stores
        }
        found: dict[str, dict[str, list[int]]] = {}
        for processor, store in self.plan.clocks():
            state = FolderState(self._folder, {store: files[processor, store]})
            found.setdefault(processor, {})[store] = [
                max(
                    (time_of(row.value) for row in state.last(store, n).values() if row.value),
                    default=NO_TIME,
                )
                for n in range(self.plan.tasks_of(processor))
            ]
        return found

    def _find_starts(self) -> Reach:
        found: dict[str, dict[str, list[int]]] = {}
        for processor, topic, _ in self.plan.sources():
            places = self.plan.places(topic)
            oldest = self._admin.oldest_offsets(places)
            firsts: Mapping[Partition, int | None] = oldest
            if self._from_ms is not None:
                firsts = self._admin.offsets_at(places, self._from_ms)
            ends = self._admin.stable_ends(places)
            found.setdefault(processor, {})[topic] = [
                ends[place] if (first := firsts[place]) is None else max(first, oldest[place])
                for place in places
            ]
        return found

    def code_changes(self) -> list[CodeChange]:
        """Return the modules of which TaskManagers run other code than there is here."""
        if not self._code:
            return []
        return code_changes(self._code, read_status(self.config).code, self.target.pipeline)

    def await_code(self, timeout_s: float) -> None:
        """Wait until all TaskManagers that are up run the code that the state was computed with.

        Raises `UnavailableError` if that takes longer.
        """
        deadline_s, said = time.monotonic() + timeout_s, ""
        while changes := self.code_changes():
            text = "; ".join(map(str, changes))
            if text != said:
                self.say(f"the job has stopped: restart the TaskManagers now. {text}")
                said = text
            if time.monotonic() > deadline_s:
                raise UnavailableError(
                    f"{text}. The state was computed with the code here, so the job continues as "
                    "it was"
                )
            time.sleep(_LOOK_S)


class _State:
    """The state at the offsets of a savepoint, as a savepoint; see `NewState`."""

    def __init__(self, rebuild: StateRebuild, rounds: Rounds, timeout_s: float) -> None:
        self._of = rebuild
        self._rounds = rounds
        self._timeout_s = timeout_s
        self.processors = rebuild.plan.processors

    def make(self, savepoint: Manifest) -> Path:
        """See `NewState`. Raises `UnavailableError` if TaskManagers keep other code."""
        folder = self._rounds.folder("state")
        if not is_savepoint(folder) or read_manifest(folder).token != savepoint.token:
            self._require_drained(savepoint)
            self._of.say("computing the last records")
            positions = {
                (saved.processor, (saved.topic, at.partition)): at.committed
                for saved in savepoint.inputs
                for at in saved.positions
            }
            reach = self._of.reach(self._rounds.starts, positions)
            self._rounds.advance(reach, self._of.reached_in(savepoint))
            self._write(folder, savepoint, positions)
        self._of.await_code(self._timeout_s)
        return folder

    def _require_drained(self, savepoint: Manifest) -> None:
        """Raise `ConfigError` if something waits between processors, which the state must have."""
        for saved in savepoint.inputs:
            if saved.left and saved.processor in self._of.plan.before:
                raise ConfigError(
                    f"records wait in {saved.topic}, and were not processed: the state cannot be "
                    "that of the offsets in the sources. The job continues as it was"
                )

    def _write(self, folder: Path, savepoint: Manifest, positions: Committeds) -> None:
        part = folder.with_name(f"{folder.name}.part")
        for path in (part, folder):
            shutil.rmtree(path, ignore_errors=True)
        part.mkdir(0o700)
        target = self._of.target
        version = PipelineVersion(1, target.pipeline, target.text, 0, savepoint.made_by)
        manifest = structs.replace(
            savepoint,
            version=version_to_json(version),
            stores=tuple(self._stores(part)),
            inputs=tuple(self._inputs(savepoint, positions)),
        )
        write_manifest(part, manifest, target.text)
        part.rename(folder)

    def _stores(self, folder: Path) -> Iterator[SavedStore]:
        pipeline = self._of.target.pipeline
        for replicas in self._rebuilt():
            topics = pipeline.state_topics(pipeline.processor(replicas[0].name))
            for store, topic in topics.items():
                found = [self._partition(folder, topic, store, replica) for replica in replicas]
                yield SavedStore(
                    processor=replicas[0].name,
                    store=store,
                    topic=topic,
                    partitions=tuple(part for part in found if part is not None),
                )

    def _partition(
        self, folder: Path, topic: str, store: str, replica: ProcessorReplica
    ) -> SavedPartition | None:
        file = None
        for batch in self._rounds.state(replica, store):
            file = file or RecordFile(folder, topic, replica.task.partition)
            file.write(batch)
        return None if file is None else file.finish()

    def _inputs(self, savepoint: Manifest, positions: Committeds) -> Iterator[SavedInput]:
        """Yield where the processors go on: the offsets of before, with the times of the state."""
        pipeline = self._of.target.pipeline
        ids = {saved.topic: saved.topic_id for saved in savepoint.inputs}
        for replicas in self._rebuilt():
            processor = pipeline.processor(replicas[0].name)
            readers = self._of.plan.readers[processor.id]
            times = {each.task.partition: self._rounds.times(each) for each in replicas}
            for name, topic in pipeline.inputs(processor).items():
                found = []
                for number in range(pipeline.partitions_of(topic)):
                    at: Committed | None = Committed(0)
                    if topic in readers:
                        at = positions.get((readers[topic], (topic, number)))
                    if at is not None:
                        time_ms = times[number].get(topic, Committed(0).time_ms)
                        at = at.moved(at.offset)._replace(time_ms=time_ms)
                        found.append(
                            SavedPosition(partition=number, offset=at.offset, metadata=at.metadata)
                        )
                yield SavedInput(
                    processor=processor.id,
                    name=name,
                    topic=topic,
                    topic_id=ids.get(topic, ""),
                    is_arc=topic not in readers,
                    positions=tuple(found),
                )

    def _rebuilt(self) -> Iterator[Sequence[ProcessorReplica]]:
        return (each for each in self._of.plan.stages if each[0].name in self.processors)
