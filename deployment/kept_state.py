"""Whether processors can go on with the state that Kafka has, before anything stops."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_from
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.lookup_tables import TopicTableSpec
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    SHAPE_STORE,
    SparkSpec,
)
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.deployment.store_contents import StateEffect, StateName, Verdict
from kafka_pipeline.streams.pipeline.kept_content import Comparison, KeptContents, keeps_content

_CONTENT = b"content"


class KeptState:
    """Judges the state that a job has, for pipelines that are to go on with it."""

    def __init__(self, config: Config, admin: Admin, contents: KeptContents | None = None) -> None:
        self._config = config
        self._admin = admin
        self._contents = contents or KeptContents(config)

    def verdicts(
        self, before: Pipeline | None, after: Pipeline, existing: Collection[str]
    ) -> dict[StateName, Verdict]:
        """Return what happens to stores about which there is something to say.

        Reads what queries have kept their state for, and starts Spark for some seconds if such a
        query has changed. Raises `UnavailableError` if Kafka does not answer.
        """
        found = dict(_of_tables(before, after, existing))
        found |= self._of_queries(before, after, existing)
        return found

    def _of_queries(
        self, before: Pipeline | None, after: Pipeline, existing: Collection[str]
    ) -> dict[StateName, Verdict]:
        former_ids = renames(before, after)
        former = {each.id: each.spec for each in before.processors} if before else {}
        asked: dict[str, tuple[PipelineProcessor, str, str]] = {}
        for processor in after.processors:
            if keeps_content(processor.spec):
                id_ = former_ids.get(processor.id, processor.id)
                topic = after.names.state(id_, SHAPE_STORE)
                if topic in existing:
                    asked[processor.id] = (processor, id_, topic)
        if not asked:
            return {}
        kept = self._kept([topic for *_, topic in asked.values()])
        compared = self._contents.compare(
            {
                name: (former.get(id_), processor.spec, kept[topic])
                for name, (processor, id_, topic) in asked.items()
                if kept[topic]
            }
        )
        return {
            (name, store): _verdict(comparison)
            for name, comparison in compared.items()
            for store in _stores_of_query(asked[name][0])
            if after.names.state(asked[name][1], store) in existing
        }

    def _kept(self, topics: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the contents that the tasks of each state topic have recorded."""
        counts = self._admin.partition_counts(topics)
        places = [(topic, number) for topic, count in counts.items() for number in range(count)]
        found: dict[Partition, str] = {}
        starts, ends = self._admin.oldest_offsets(places), self._admin.stable_ends(places)
        for batch in read_from(self._config, starts, ends):
            for key, value in zip(batch.keys, batch.values, strict=True):
                if key == _CONTENT:
                    found[batch.topic, batch.partition] = (value or b"").decode()
        return {
            topic: frozenset(
                content for place, content in found.items() if place[0] == topic and content
            )
            for topic in topics
        }


def _verdict(comparison: Comparison) -> Verdict:
    if comparison.different:
        return Verdict(
            StateEffect.IMPOSSIBLE, f"it was kept for another query: {comparison.different}"
        )
    if comparison.unknown:
        return Verdict(StateEffect.UNCHECKED, comparison.unknown)
    if comparison.converted:
        return Verdict(StateEffect.CONVERTED, comparison.converted)
    return Verdict(StateEffect.KEPT, comparison.remark)


def _tables(processor: PipelineProcessor) -> Mapping[str, TopicTableSpec]:
    spec = processor.spec
    return spec.topic_tables if isinstance(spec, SparkSpec) else {}


def _stores_of_query(processor: PipelineProcessor) -> Iterator[str]:
    """Yield the stores of a query, without those of its tables."""
    tables = {
        store for name, table in _tables(processor).items() for store in table.stores_of(name)
    }
    yield from (store.name for store in processor.stores if store.name not in tables)


def _of_tables(
    before: Pipeline | None, after: Pipeline, existing: Collection[str]
) -> Iterator[tuple[StateName, Verdict]]:
    """Yield the tables of queries that follow another topic, or have another format than before.

    A versioned store has a topic of its own. It would begin empty, as the records that were read so
    far do not come again.
    """
    former_ids = renames(before, after)
    former = {each.id: each for each in before.processors} if before else {}
    for processor in after.processors:
        id_ = former_ids.get(processor.id, processor.id)
        topics = _topics_of_tables(after, processor)
        had = _topics_of_tables(before, former[id_]) if before and id_ in former else {}
        for name, table in _tables(processor).items():
            store, has = table.store_of(name), table.has_history
            if store not in after.state_topics(processor):
                continue
            place, topic = (processor.id, store), topics.get(name)
            if after.names.state(id_, store) in existing:
                if had.get(name, topic) != topic:
                    yield place, Verdict(StateEffect.KEPT, f"rows that came from {had[name]} stay")
                continue
            other = after.names.state(id_, table.store_name(name, has_history=not has))
            if other in existing:
                way, back = ("without", "leave history out") if has else ("with", "give it history")
                reason = (
                    f'the table "{name}" was kept {way} a history, in another format, and would '
                    f"begin empty: {back} again"
                )
                yield place, Verdict(StateEffect.IMPOSSIBLE, reason)


def _topics_of_tables(pipeline: Pipeline, processor: PipelineProcessor) -> dict[str, str]:
    """Return the topics that tables follow of which tasks have the keys of their records."""
    topics = pipeline.inputs(processor)
    return {
        name: topics[table.topic]
        for name, table in _tables(processor).items()
        if table.topic in topics
    }
