"""What would change if another version of a pipeline ran: values only, nothing here asks Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import SparkSpec
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.suggest import did_you_mean, one_of
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.record_forms import changed_forms
from kafka_pipeline.deployment.renames import renames, with_new_ids
from kafka_pipeline.deployment.store_contents import (
    StateEffect,
    StateName,
    Verdict,
    combined,
    content_verdicts,
)


class Effect(StrEnum):
    """What happens to a task."""

    ADDED = "added"
    RESTARTED = "restarted"
    REMOVED = "removed"
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True)
class PlannedStore:
    """A store of a processor, its topic, what happens to its state, and why ("" if plain)."""

    processor: str
    name: str
    topic: str
    effect: StateEffect
    reason: str = ""
    entry: str = field(default="", compare=False)
    """The id of the processor's entry in pipeline.yaml, if that is still in it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The state that is given up: stores, and internal topics, all of which begin empty."""

    stores: frozenset[StateName] = frozenset()
    inputs: frozenset[StateName] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything is given up."""
        return bool(self.stores)


NOTHING_LOST = Lost()


@dataclass(frozen=True, slots=True)
class NewInput:
    """A topic that a processor has not read before, and where it begins: earliest or latest."""

    processor: str
    topic: str
    begins: str


@dataclass(frozen=True, slots=True)
class Arc:
    """A topic between processors that is to be drained, those that write it, and its reader.

    It is taken away, unless a `change` of its records is the reason, in words.
    """

    topic: str
    writers: tuple[str, ...]
    reader: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference between the pipeline that runs, if one does, and another one.

    `losses` are sentences: what is taken away, which needs consent. `arcs` are taken away, too, or
    get other records; what is left in them is processed first. `lost` is the state that begins
    empty. `misread` says, by processor, what it would misread, as nobody can drain it, or why it
    would not know where its state goes on.
    """

    tasks: Mapping[TaskId, Effect] = field(hash=False)
    made: tuple[str, ...]
    made_of_user: tuple[str, ...]
    """Sources and sinks among `made`: the user may make them before, with other settings."""
    kept: tuple[str, ...]
    orphaned: tuple[str, ...]
    stores: tuple[PlannedStore, ...]
    inputs: tuple[NewInput, ...]
    losses: tuple[str, ...]
    arcs: tuple[Arc, ...]
    renamed: Mapping[str, str] = field(hash=False)
    """Former ids by new ones, of processors whose state and offsets are taken along."""
    lost: Lost = NOTHING_LOST
    misread: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def impossible(self) -> dict[str, str]:
        """Why processors cannot use what they have in state or in arcs, by processor."""
        found = {processor: {reason: None} for processor, reason in self.misread.items()}
        for store in self.stores:
            if store.effect is StateEffect.IMPOSSIBLE:
                found.setdefault(store.processor, {})[store.reason] = None
        return {processor: "; ".join(reasons) for processor, reasons in found.items()}

    @property
    def impossible_entries(self) -> list[str]:
        """The ids in pipeline.yaml of the processors that cannot use the state that they have."""
        stores = (each for each in self.stores if each.effect is StateEffect.IMPOSSIBLE)
        return [*dict.fromkeys(each.entry or each.processor for each in stores)]

    @property
    def counts(self) -> dict[Effect, int]:
        """How many tasks each effect has."""
        found = Counter(self.tasks.values())
        return {effect: found[effect] for effect in Effect}

    @property
    def changes_nothing(self) -> bool:
        """Whether all goes on as it is."""
        return not self.made and not self.renamed and set(self.tasks.values()) <= {Effect.UNTOUCHED}

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {
            "tasks": {
                str(effect): [
                    str(task) for task, of_task in self.tasks.items() if of_task is effect
                ]
                for effect in Effect
            },
            "topics": {
                "made": list(self.made),
                "made_of_user": list(self.made_of_user),
                "kept": list(self.kept),
                "orphaned": list(self.orphaned),
            },
            "stores": [
                {
                    "processor": store.processor,
                    "store": store.name,
                    "topic": store.topic,
                    "state": str(store.effect),
                    "reason": store.reason,
                }
                for store in self.stores
            ],
            "new_inputs": [
                {"processor": each.processor, "topic": each.topic, "begins": each.begins}
                for each in self.inputs
            ],
            "renamed": dict(self.renamed),
            "losses": list(self.losses),
            "arcs_to_drain": [arc.topic for arc in self.arcs],
            "arcs_changed": {arc.topic: arc.change for arc in self.arcs if arc.change},
        }


def plan(
    before: Pipeline | None,
    after: Pipeline,
    existing: Collection[str],
    verdicts: Mapping[StateName, Verdict] = {},
    lost: Collection[str] = (),
    rebuilt: Collection[str] = (),
) -> Plan:
    """Return what would change; `existing` are the names of the topics that Kafka has.

    A store that is to go on without a verdict is `KEPT`, or `FOUND`. `lost` are the processors
    whose state begins empty, and `rebuilt` those whose state is computed again.
    """
    topics = after.all_topics
    gone = {*before.all_topics}.difference(topics, before.user_topics) if before else set()
    renamed = renames(before, after)
    before = with_new_ids(before, after) if before else None
    of_contents = dict(content_verdicts(before, after))
    verdicts = of_contents | {
        name: combined(of_contents.get(name), verdict) for name, verdict in verdicts.items()
    }
    given_up = _lost(before, after, verdicts, lost)
    arcs = [*_arcs_that_change(before, after)] if before else []
    return Plan(
        tasks=_tasks(before, after),
        made=tuple(topic for topic in topics if topic not in existing),
        made_of_user=tuple(topic for topic in after.user_topics if topic not in existing),
        kept=tuple(topic for topic in topics if topic in existing),
        orphaned=tuple(sorted(gone.intersection(existing))),
        stores=tuple(_stores(before, after, existing, verdicts, given_up.stores, rebuilt)),
        inputs=tuple(_new_inputs(before, after)),
        losses=tuple(_losses(before, after, arcs)) if before else (),
        arcs=tuple(arc for arc, is_in_loop in arcs if not is_in_loop),
        renamed=renamed,
        lost=given_up,
        misread={**_misread(arcs, lost), **_without_offsets(before, after, renamed, lost)},
    )


def _lost(
    before: Pipeline | None,
    after: Pipeline,
    verdicts: Mapping[StateName, Verdict],
    lost: Collection[str],
) -> Lost:
    """Return the state of processors that begin empty.

    Tables of queries that can be used stay: their rows do not come again.
    """
    former = _by_id(before)
    stores, inputs = set(), set()
    for processor in after.processors:
        if processor.id not in lost:
            continue
        spec = processor.spec
        tables = spec.topic_tables if isinstance(spec, SparkSpec) else {}
        usable = {
            store
            for name, table in tables.items()
            if verdicts.get((processor.id, table.store_of(name)), _KEPT).effect
            is not StateEffect.IMPOSSIBLE
            for store in table.stores_of(name)
        }
        had = former.get(processor.id)
        names = {store.name for each in (processor, had) if each for store in each.stores}
        stores |= {(processor.id, name) for name in names - usable}
        inputs |= {(processor.id, name) for name in processor.internal_topics}
    return Lost(frozenset(stores), frozenset(inputs))


_KEPT = Verdict(StateEffect.KEPT)


def processors_with_state(pipeline: Pipeline, ids: Collection[str]) -> list[str]:
    """Return the processors whose state is meant; the id of an entry means all of its parts.

    Raises `ConfigError` for an id that no processor with state has.
    """
    found: dict[str, None] = {}
    for id_ in ids:
        own = [each for each in pipeline.processors if id_ in (each.id, each.entry)]
        if not any(each.stores for each in own):
            stateful = [each.id for each in pipeline.processors if each.stores]
            has = f": it has {one_of(stateful)}" if stateful else ""
            hint = did_you_mean(id_, stateful) or has
            raise ConfigError(f'the pipeline has no processor "{id_}" with state{hint}')
        found |= dict.fromkeys(each.id for each in own if each.stores)
    return [*found]


def arcs_to_drain(before: Pipeline, after: Pipeline) -> Iterator[Arc]:
    """Yield the arcs whose reader is to be gone, or whose records change, in the graph's order.

    Arcs of a loop, by which node groups of a topology answer each other, are left out: its members
    stop together, and what is in it is not processed.
    """
    for arc, is_in_loop in _arcs_that_change(before, after):
        if not is_in_loop:
            yield arc


def _arcs_that_change(before: Pipeline, after: Pipeline) -> Iterator[tuple[Arc, bool]]:
    """Yield the arcs that go or get other records, and whether each is part of a loop."""
    stay, changed = after.arcs, changed_forms(before, after)
    writers: dict[str, list[str]] = {}
    for processor in before.processors:
        for topic in before.out_topics(processor):
            writers.setdefault(topic, []).append(processor.id)
    arcs = [
        Arc(topic, tuple(writers.get(topic, ())), reader, changed.get(topic, ""))
        for topic, reader in before.arcs.items()
    ]
    targets: dict[str, set[str]] = {}
    for arc in arcs:
        for writer in arc.writers:
            targets.setdefault(writer, set()).add(arc.reader)
    for arc in arcs:
        if arc.change or stay.get(arc.topic) != arc.reader:
            yield arc, not reached(arc.reader, targets).isdisjoint(arc.writers)


def _misread(arcs: Collection[tuple[Arc, bool]], lost: Collection[str]) -> dict[str, str]:
    """Return what readers of loops would misread, by processor; what is lost begins empty."""
    return {
        arc.reader: f"what waits in {arc.topic} cannot be drained, as processors that send to each "
        f"other write it, and would be misread: {arc.change}"
        for arc, is_in_loop in arcs
        if is_in_loop and arc.change and arc.reader not in lost
    }


def _without_offsets(
    before: Pipeline | None, after: Pipeline, renamed: Mapping[str, str], lost: Collection[str]
) -> dict[str, str]:
    """Return why renamed processors cannot go on with their state; what is lost begins empty."""
    former, now, found = _by_id(before), _by_id(after), {}
    for new, old in renamed.items():
        had, has = former[new], now[new]
        kept = {store.name for store in had.stores} & {store.name for store in has.stores}
        if before and kept and new not in lost:
            read, reads = before.in_topics(had), after.in_topics(has)
            if set(read).isdisjoint(reads):
                found[new] = (
                    f'it reads none of the topics that "{old}" read, so there is no offset at '
                    "which its state goes on: rename it first, and change its inputs afterwards"
                )
    return found


def reached(start: str, targets: Mapping[str, Collection[str]]) -> set[str]:
    """Return the processors that something sent to `start` may come to, `start` included."""
    found, left = {start}, [start]
    while left:
        new = set(targets.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def _by_id(pipeline: Pipeline | None) -> dict[str, PipelineProcessor]:
    return {processor.id: processor for processor in pipeline.processors} if pipeline else {}


def _tasks(before: Pipeline | None, after: Pipeline) -> dict[TaskId, Effect]:
    had = {each.task: each.fingerprint for each in replicas(before)} if before else {}
    effects = {}
    for replica in replicas(after):
        fingerprint = had.pop(replica.task, None)
        if fingerprint is None:
            effects[replica.task] = Effect.ADDED
        elif fingerprint == replica.fingerprint:
            effects[replica.task] = Effect.UNTOUCHED
        else:
            effects[replica.task] = Effect.RESTARTED
    return effects | dict.fromkeys(had, Effect.REMOVED)


def _stores(
    before: Pipeline | None,
    after: Pipeline,
    existing: Collection[str],
    verdicts: Mapping[StateName, Verdict],
    lost: Collection[StateName],
    rebuilt: Collection[str],
) -> Iterator[PlannedStore]:
    had = {
        topic: (processor.id, name)
        for processor in (before.processors if before else ())
        for name, topic in _state_topics(before, processor).items()
    }
    for processor in after.processors:
        for name, topic in after.state_topics(processor).items():
            was_kept = had.pop(topic, None) is not None
            verdict = verdicts.get((processor.id, name), _KEPT)
            effect = verdict.effect
            is_impossible = effect is StateEffect.IMPOSSIBLE
            if (processor.id, name) in lost and (was_kept or topic in existing or is_impossible):
                effect = StateEffect.LOST
            elif processor.id in rebuilt:
                effect = StateEffect.REBUILT
            elif effect is StateEffect.KEPT and not was_kept:
                effect = StateEffect.FOUND if topic in existing else StateEffect.NEW
            yield PlannedStore(processor.id, name, topic, effect, verdict.reason, processor.entry)
    for topic, (id_, name) in had.items():
        yield PlannedStore(id_, name, topic, StateEffect.LEFT)


def _new_inputs(before: Pipeline | None, after: Pipeline) -> Iterator[NewInput]:
    former = _by_id(before)
    arcs = after.arcs
    had_readers = before.arcs if before else {}
    for processor in after.processors:
        had = before.in_topics(former[processor.id]) if before and processor.id in former else ()
        for name, topic in after.inputs(processor).items():
            is_known = topic in had or (topic in arcs and topic not in had_readers)
            if not is_known:
                source = processor.sources.get(name)
                yield NewInput(
                    processor.id, topic, source.auto_offset_reset if source else "earliest"
                )


def _losses(before: Pipeline, after: Pipeline, arcs: Collection[tuple[Arc, bool]]) -> Iterator[str]:
    now, had = _by_id(after), _by_id(before)
    for processor in before.processors:
        state = _state_topics(before, processor)
        if processor.id not in now:
            lost = f", and its state in {', '.join(state.values())} is no longer kept"
            hint = _successor(processor, after, had)
            yield f'"{processor.id}" is removed{lost if state else ""}{hint}'
            continue
        successor = now[processor.id]
        remaining = set(after.in_topics(successor))
        for topic in before.in_topics(processor):
            if topic not in remaining:
                yield f'"{processor.id}" no longer reads {topic}'
        topics = set(after.state_topics(successor).values())
        for name, topic in state.items():
            if topic not in topics:
                yield f'"{processor.id}" no longer keeps the store "{name}" (topic {topic})'
    for arc, is_in_loop in arcs:
        if is_in_loop and not arc.change:
            members = ", ".join(f'"{id_}"' for id_ in dict.fromkeys((*arc.writers, arc.reader)))
            yield f"what is in {arc.topic} is not processed: {members} send to each other"


def _successor(
    processor: PipelineProcessor, after: Pipeline, had: Mapping[str, PipelineProcessor]
) -> str:
    """Return a hint if a new processor does the same as one that is removed."""
    for other in after.processors:
        if other.id not in had and other.spec == processor.spec:
            return (
                f' ("{other.id}", which does the same, begins anew: with `was: {processor.id}` it '
                "would go on with it)"
            )
    return ""


def _state_topics(pipeline: Pipeline | None, processor: PipelineProcessor) -> dict[str, str]:
    return pipeline.state_topics(processor) if pipeline else {}
