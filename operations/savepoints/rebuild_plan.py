"""Whose state is computed again, and what else must run over history for that; values only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.event_time import need_event_time, stores_of_times
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.streams.backfill.plan import in_order


class RebuildPlan:
    """The processors whose state is rebuilt, those that feed them, and the sources of both."""

    def __init__(self, before: Pipeline, after: Pipeline, entry: str) -> None:
        """Find them, for an entry of pipeline.yaml; `before` is the pipeline that runs.

        Raises `ConfigError` if the state cannot be rebuilt, and says why.
        """
        self._before = before
        self._after = after
        rebuilt = _of_entry(after, entry)
        if not rebuilt:
            raise ConfigError(f'--rebuild {entry}: the pipeline has no processor "{entry}"')
        if not any(each.is_stateful for each in rebuilt):
            raise ConfigError(f"--rebuild {entry}: it has no store with a state topic")
        if renames(before, after):
            raise ConfigError("--rebuild: rename processors first, with a separate apply")
        self.processors = tuple(each.id for each in rebuilt)
        """Those whose state is rebuilt; an entry for a topology or a query may have several."""
        arcs = after.arcs
        all_ = in_order(after, _with_writers(after, rebuilt))
        self.internal = frozenset(t for each in all_ for t in after.in_topics(each) if t in arcs)
        """The topics between all of the processors."""
        of_former = {each.id: _of_entry(before, each.entry) for each in all_}
        self.readers: Mapping[str, Mapping[str, str]] = {
            each.id: {
                topic: self._reader(each, topic, of_former[each.id])
                for topic in after.in_topics(each)
                if topic not in arcs
            }
            for each in all_
        }
        """The processor that reads a source now, by processor and source."""
        tasks: dict[str, list[ProcessorReplica]] = {each.id: [] for each in all_}
        for replica in replicas(after):
            if replica.name in tasks:
                tasks[replica.name].append(replica)
        self.stages: Sequence[Sequence[ProcessorReplica]] = [*tasks.values()]
        """The tasks of all processors, writers before their readers."""
        self.before = frozenset(former.id for its in of_former.values() for former in its)
        """The processors of all these entries, as they run now."""
        need_time = need_event_time(after)
        for each in all_:
            self._require_possible(each, needs_time=each.id in need_time)

    def _require_possible(self, processor: PipelineProcessor, *, needs_time: bool) -> None:
        id_, inputs = processor.id, self._after.in_topics(processor)
        if processor.global_stores:
            raise ConfigError(f"--rebuild: {id_} has a global store: its past content is not known")
        if self._after.feedback_topics(processor):
            raise ConfigError(
                f"--rebuild: {id_} reads feedback, and the time when a record came back cannot be "
                "computed again"
            )
        if needs_time and len(inputs) > 1:
            self._require_time_of_inputs(processor)
        for topic in self.readers[id_]:
            if self._after.partitions_of(topic) != self._before.partitions_of(topic):
                raise ConfigError(
                    f"--rebuild: {topic} has other partitions than before: apply that first"
                )

    def _require_time_of_inputs(self, processor: PipelineProcessor) -> None:
        """Raise `ConfigError` if event time depends on when records of several inputs came."""
        inputs = self._after.in_topics(processor)
        if self.internal.issuperset(inputs):
            return
        is_last = self._after.arcs.keys().isdisjoint(self._after.out_topics(processor))
        if not is_last or not self.internal.isdisjoint(inputs):
            raise ConfigError(
                f"--rebuild: {processor.id} has windows or joins by time, and reads sources along "
                "with other processors, or several sources ahead of others. Its event time "
                "depended on when their records arrived, which cannot be computed again"
            )

    def _reader(
        self, processor: PipelineProcessor, topic: str, former: Sequence[PipelineProcessor]
    ) -> str:
        """Return the processor whose committed offsets in a source are those to go on from."""
        found = [each.id for each in former if topic in self._before.in_topics(each)]
        if processor.id in found:
            return processor.id
        if len(found) == 1:
            return found[0]
        raise ConfigError(
            f"--rebuild: {processor.id} does not read {topic} in the running pipeline, so there is "
            "no offset to continue from. A new input needs no rebuild, but only `pipeline apply`"
        )

    def sources(self) -> Iterator[tuple[str, str, str]]:
        """Yield each processor, each source that it reads, and the one that reads it now."""
        for processor, topics in self.readers.items():
            for topic, reader in topics.items():
                yield processor, topic, reader

    def clocks(self) -> Iterator[tuple[str, str]]:
        """Yield the stores with the event time of steps behind other processors, as they run now.

        Each is that of a processor in the plan, whose step has the same name in both versions.
        """
        former = {each.id: each for each in self._before.processors}
        for id_ in self.readers:
            had, processor = former.get(id_), self._after.processor(id_)
            if had is None or not self._is_behind(self._before, had):
                continue
            is_same = self._after.task_count(processor) == self.tasks_of(id_)
            if is_same and self._is_behind(self._after, processor):
                known = stores_of_times(had)
                yield from ((id_, store) for store in stores_of_times(processor) if store in known)

    @staticmethod
    def _is_behind(pipeline: Pipeline, processor: PipelineProcessor) -> bool:
        return not pipeline.arcs.keys().isdisjoint(pipeline.in_topics(processor))

    def places(self, topic: str) -> list[tuple[str, int]]:
        """See `Pipeline`."""
        return self._after.places(topic)

    def tasks_of(self, processor: str) -> int:
        """Return how many tasks a processor has now."""
        return self._before.task_count(self._before.processor(processor))

    def state_topic(self, processor: str, store: str) -> str:
        """Return the state topic that a store has now."""
        return self._before.state_topics(self._before.processor(processor))[store]

    @property
    def feeders(self) -> list[str]:
        """The processors that run over history, and keep their state all the same."""
        return [id_ for id_ in self.readers if id_ not in self.processors]


def _of_entry(pipeline: Pipeline, entry: str) -> list[PipelineProcessor]:
    return [each for each in pipeline.processors if each.entry == entry]


def _with_writers(
    pipeline: Pipeline, processors: Collection[PipelineProcessor]
) -> list[PipelineProcessor]:
    """Return processors, and all that write what they read, directly or not, in the job."""
    arcs = pipeline.arcs
    found = {each.id for each in processors}
    while True:
        read = {
            topic
            for each in pipeline.processors
            if each.id in found
            for topic in pipeline.in_topics(each)
            if topic in arcs
        }
        writers = {
            each.id
            for each in pipeline.processors
            if not read.isdisjoint(pipeline.out_topics(each))
        }
        if writers <= found:
            return [each for each in pipeline.processors if each.id in found]
        found |= writers
