"""What a restore of a savepoint is to do to a job: found out before anything is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from msgspec import structs
from rich.table import Table

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.every_broker import EveryBroker
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.operations.savepoints.manifest import (
    Manifest,
    SavedInput,
    SavedPosition,
    SavedStore,
    Sources,
)
from kafka_pipeline.operations.savepoints.saved_state import Spreads
from kafka_pipeline.operations.savepoints.sharding import check_spread


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a processor begins in a source: the offset, and the position in the savepoint."""

    processor: str
    place: Partition
    saved: Committed
    offset: int


@dataclass(frozen=True, slots=True)
class StoreFill:
    """A saved store, the state topic to fill with it, and the topic's number of partitions.

    If it is `spread`, its records are assigned again, to other tasks.
    """

    saved: SavedStore
    topic: str
    count: int
    spread: bool


@dataclass(frozen=True, slots=True)
class ArcFill:
    """The same for what was left in an arc, which `reader` reads."""

    saved: SavedInput
    reader: str
    topic: str
    count: int
    spread: bool


class RestorePlan:
    """What a restore is to do to a job; `losses` are sentences, which need consent."""

    def __init__(
        self,
        config: Config,
        admin: Admin,
        manifest: Manifest,
        pipeline: Pipeline,
        sources: Sources | None,
        *,
        by_key: Collection[str],
        in_place: bool,
        renewed: Collection[str],
        spreads: Spreads,
    ) -> None:
        """Find out; see `Restore` for the arguments, and for what it raises."""
        self._config = config
        self._admin = admin
        self._spreads = spreads
        self._manifest = manifest
        self._former = manifest.pipeline_version().pipeline
        self._pipeline = pipeline
        self._sources = sources
        self._in_place = in_place
        self._renewed = renewed
        self._new_ids = {old: new for new, old in renames(self._former, pipeline).items()}
        self._new_names = {old: new for new, old in pipeline.renames.items()}
        self._sources_of = {
            (processor.id, topic): name
            for processor in pipeline.processors
            for name, topic in pipeline.inputs(processor).items()
        }
        """The names of inputs, by processor and topic."""
        self._written = {t for each in pipeline.processors for t in pipeline.out_topics(each)}
        self.stores: list[StoreFill] = []
        self.arcs: list[ArcFill] = []
        self.begins: list[Begin] = []
        self.empty: list[str] = []
        """Stores that begin empty, as `Processor.store`."""
        self.renewed: list[str] = []
        """The topics of state that is given up, which are made anew and stay empty."""
        self.losses: list[str] = []
        self.moved: set[str] = set()
        """The processors whose committed offsets are set."""
        self._lost = spreads.lost
        stateful = {
            id_
            for each in manifest.stores
            if each.partitions
            and ((id_ := self._id(each.processor)), each.store) not in self._lost.stores
        }
        check_spread(self._former, pipeline, stateful, by_key)
        self._plan_stores()
        self._plan_inputs()

    def table(self) -> Table:
        """Return what would be done, for the user."""
        table = Table("", "from", "to", "records")
        for store in self.stores:
            records = sum(part.records for part in store.saved.partitions)
            to = f"{store.topic} ({store.count})"
            table.add_row("state", store.saved.topic, to, f"{records:,}")
        for arc in self.arcs:
            records = sum(part.records for part in arc.saved.left)
            to = f"{arc.topic} ({arc.count})"
            table.add_row("waiting", arc.saved.topic, to, f"{records:,}")
        for begin in self.begins:
            topic, number = begin.place
            to = f"{topic}[{number}], offset {begin.offset:,}"
            table.add_row("input", f"{begin.processor}, offset {begin.saved.offset:,}", to, "")
        for store_name in self.empty:
            table.add_row("state", "", store_name, "empty")
        return table

    def _plan_stores(self) -> None:
        target = self._pipeline
        saved = {(self._id(each.processor), each.store): each for each in self._manifest.stores}
        for processor in target.processors:
            count = target.task_count(processor)
            for name, topic in target.state_topics(processor).items():
                found = saved.pop((processor.id, name), None)
                if (processor.id, name) in self._lost.stores:
                    self.renewed.append(topic)
                    self.empty.append(f"{processor.id}.{name}")
                    continue
                if found is None:
                    self.empty.append(f"{processor.id}.{name}")
                    continue
                spread = self._spreads.is_changed(found.processor, name)
                is_other = spread or found.topic != topic or processor.id in self._renewed
                if not self._in_place or is_other:
                    self.stores.append(StoreFill(found, topic, count, spread))
        for processor_id, name in saved:
            self.losses.append(
                f'the state of the store "{name}" of "{processor_id}" is left out: the pipeline '
                "has no such store"
            )

    def _plan_inputs(self) -> None:
        target, arcs = self._pipeline, self._pipeline.arcs
        topics = {
            (processor.id, name): topic
            for processor in target.processors
            for name, topic in target.inputs(processor).items()
        }
        found = [
            (self._kept(saved), topics.get(self._place(saved))) for saved in self._manifest.inputs
        ]
        # A processor's offsets are in one group, so all of them are set, or none.
        self.moved = {
            self._id(saved.processor)
            for saved, topic in found
            if not self._in_place or not self._stays(saved, topic)
        }
        for saved, topic in found:
            records = sum(part.records for part in saved.left)
            if topic is None or (topic in arcs) != saved.is_arc:
                if records:
                    self.losses.append(
                        f'"{self._id(saved.processor)}" does not read {saved.topic} in this '
                        "pipeline, so what waits in it is left out: "
                        f"{counted(records, 'record')}"
                    )
            elif self._id(saved.processor) not in self.moved:
                continue
            elif saved.is_arc:
                count = target.partitions_of(topic)
                spread = count != self._former.partitions_of(saved.topic)
                reader = self._id(saved.processor)
                self.arcs.append(ArcFill(saved, reader, topic, count, spread))
                self._note_table(reader, topic)
            else:
                self.begins += self._begins(saved, topic)

    def _note_table(self, reader: str, arc: str) -> None:
        """Say if a table gets rows once more: it knows them by their offsets in the former arc."""
        spec = self._pipeline.processor(reader).spec
        appends = isinstance(spec, TableSinkSpec) and spec.mode == "append"
        if appends and not self._in_place and self._manifest.job == self._config.job_name:
            self.losses.append(
                f'the rows that "{reader}" has written to its table since the savepoint stay there '
                f"and are written once more: {arc}, which it reads, is created again"
            )

    def _kept(self, saved: SavedInput) -> SavedInput:
        """Return an input without what waits in it if that is given up."""
        return structs.replace(saved, left=()) if self._is_lost(saved) else saved

    def _is_lost(self, saved: SavedInput) -> bool:
        return self._place(saved) in self._lost.inputs

    def _stays(self, saved: SavedInput, topic: str | None) -> bool:
        """Whether a topic of the savepoint is there as it was, and so are the offsets in it."""
        return (
            saved.topic == topic
            and not self._is_lost(saved)
            and saved.processor not in self._renewed
            and self._id(saved.processor) == saved.processor
            and self._pipeline.partitions_of(topic) == self._former.partitions_of(topic)
        )

    def _id(self, former: str) -> str:
        """Return the id that a processor of the savepoint has now."""
        return self._new_ids.get(former, former)

    def _place(self, saved: SavedInput) -> tuple[str, str]:
        """Return the processor and the name of an input as they are now.

        A source is known by its topic, or else by its name.
        """
        id_ = self._id(saved.processor)
        name = self._new_names.get(saved.name, saved.name)
        return id_, name if saved.is_arc else self._sources_of.get((id_, saved.topic), name)

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
        # By its end or by a time, a leader that is behind would give a place that is too early.
        may_be_behind = how in (Sources.TIME, Sources.LATEST)
        asked = EveryBroker(self._config, self._admin) if may_be_behind else self._admin
        oldest, ends = self._admin.oldest_offsets(places), asked.stable_ends(places)
        following = 0
        for position in saved.positions:
            place = (topic, position.partition)
            if place not in ends:
                raise ConfigError(
                    f"{topic} has {counted(count, 'partition')}, and the savepoint's topic had more"
                )
            wanted = _wanted(asked, how, position, place, oldest[place], ends[place])
            if how is Sources.OFFSETS and wanted > ends[place]:
                raise ConfigError(
                    f"{topic}[{position.partition}] ends at offset {ends[place]}, before offset "
                    f"{wanted} of the savepoint: its records are gone, or it is another topic"
                )
            at = wanted if self._has_history(saved) else max(wanted, oldest[place])
            if at > wanted:
                self.losses.append(
                    f"{counted(at - wanted, 'offset')} that followed in {topic}"
                    f"[{position.partition}] were deleted since"
                )
            following += ends[place] - at
            yield Begin(self._id(saved.processor), place, position.committed, at)
        if following > 0 and not self._in_place and topic in self._written:
            self.losses.append(
                f'the job writes {topic} itself, and "{self._id(saved.processor)}" continues '
                f"{counted(following, 'offset')} before its end: records that the job has written "
                "there since the savepoint are processed, and once more when written again"
            )

    def _has_history(self, saved: SavedInput) -> bool:
        """Whether a table has the records that are not in the topic any more."""
        id_, name = self._place(saved)
        source = self._pipeline.processor(id_).sources.get(name)
        return source is not None and source.history is not None


def _wanted(
    asked: Admin | EveryBroker,
    how: Sources | None,
    position: SavedPosition,
    place: Partition,
    oldest: int,
    end: int,
) -> int:
    match how:
        case Sources.EARLIEST:
            return oldest
        case Sources.LATEST:
            return end
        case Sources.TIME if position.committed.time_ms >= 0:
            found = asked.offsets_at([place], position.committed.time_ms + 1)[place]
            return end if found is None else found
        case Sources.TIME:
            return oldest
    return position.offset
