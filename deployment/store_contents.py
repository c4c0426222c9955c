"""What happens to the state of stores in a change, as far as their contents say: values only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor, StoreContent
from kafka_pipeline.common.pipelines.specs import ClassSpec, TopologySpec


class StateEffect(StrEnum):
    """What happens to the state of a store."""

    KEPT = "kept"
    CONVERTED = "converted"
    """It goes on, and from now on another part of it is kept: the reason says which one."""
    FOUND = "found"
    """Of a former processor with the same id: the new one goes on with it."""
    NEW = "new"
    LEFT = "left"
    """Its topic stays in Kafka, but nobody keeps it up to date."""
    LOST = "lost"
    """Somebody has agreed that it begins empty."""
    REBUILT = "rebuilt"
    """It is computed again from the sources."""
    IMPOSSIBLE = "impossible"
    """The new processor cannot use it: the change is refused, unless somebody gives it up."""
    UNCHECKED = "unchecked"
    """Nobody can tell here. If the processor cannot use it, its tasks FAIL and nothing is lost."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a store that exists, and why."""

    effect: StateEffect
    reason: str = ""


StateName = tuple[str, str]
"""A processor, and the name of a store, or of an internal topic that it reads."""


_UNKNOWN = (
    "the version that runs was applied by an earlier version of the engine, which did not say what "
    "its stores have: their kinds, windows and serdes are not compared"
)


def content_verdicts(
    before: Pipeline | None, after: Pipeline
) -> Iterator[tuple[StateName, Verdict]]:
    """Yield the stores about whose state there is something to say, of those with the same name.

    A new retention, and a move to disk or to memory, change nothing about them. A new grace period
    changes which windows close, if they give their results then.
    """
    former = {each.id: each for each in before.processors} if before else {}
    for processor in after.processors:
        had = former.get(processor.id)
        if had is None:
            continue
        contents, topics = _contents(had), before.state_topics(had) if before else {}
        closed_after = {store.name: store.spreading.closes_ms for store in had.stores}
        closes_after = {store.name: store.spreading.closes_ms for store in processor.stores}
        for name, content in _contents(processor).items():
            if topics.get(name) != after.state_topics(processor).get(name):
                continue  # it is not the same state
            kept = contents.get(name)
            is_known = kept is not None and content is not None
            if kept and content and (changed := _difference(kept, content)):
                yield (processor.id, name), Verdict(StateEffect.IMPOSSIBLE, changed)
            elif kept and content and kept.format < content.format:
                yield (
                    (processor.id, name),
                    Verdict(
                        StateEffect.CONVERTED,
                        f"values are upgraded from format {kept.format} to {content.format} as "
                        "they are read",
                    ),
                )
            elif kept and content and (stays := _of_former_topics(kept, content)):
                yield (processor.id, name), Verdict(StateEffect.KEPT, stays)
            elif closes := _of_closes(closed_after.get(name), closes_after.get(name)):
                yield (processor.id, name), Verdict(StateEffect.CONVERTED, closes)
            elif not is_known and name in contents and isinstance(had.spec, TopologySpec):
                yield (processor.id, name), Verdict(StateEffect.KEPT, _UNKNOWN)


def combined(one: Verdict | None, other: Verdict) -> Verdict:
    """Return what two verdicts about a store come to: the graver one, with both reasons."""
    if one is None or one.effect is StateEffect.IMPOSSIBLE:
        return one or other
    graver = one if other.effect is StateEffect.KEPT else other
    if graver.effect is StateEffect.IMPOSSIBLE:
        return graver
    return Verdict(graver.effect, "; ".join(filter(None, (other.reason, one.reason))))


def _of_former_topics(kept: StoreContent, wanted: StoreContent) -> str:
    """Return which rows of a table stay that came from topics it is not made of any more."""
    if len(kept.sides) != 1 or len(wanted.sides) != 1:
        return ""
    former = [topic for topic in kept.sides[0] if topic not in wanted.sides[0]]
    return f"rows that came from {' and '.join(former)} stay" if former else ""


def _of_closes(before_ms: int | None, now_ms: int | None) -> str:
    """Return what becomes of windows that give their results so long after their start."""
    if before_ms is None or before_ms == now_ms:
        return ""
    if now_ms is None:
        return (
            "results come with each record, and no longer when windows close: windows that are "
            "open have none unless another record comes"
        )
    if now_ms < before_ms:
        return (
            f"windows close {before_ms - now_ms} ms earlier, by their grace period: those that are "
            "open, and would have closed by now, give no result"
        )
    return (
        f"windows close {now_ms - before_ms} ms later, by their grace period: those that have "
        "closed within this time are open again, and give a second result"
    )


def _contents(processor: PipelineProcessor) -> dict[str, StoreContent | None]:
    """Return what stores have; classes have always said that about theirs."""
    found = {store.name: store.content for store in processor.stores}
    spec = processor.spec
    if isinstance(spec, ClassSpec):
        for store in spec.stores:
            if store.name in found and found[store.name] is None:
                size_ms = store.window_size_ms
                found[store.name] = StoreContent(
                    family=store.type.replace("_", "-"),
                    key=store.key,
                    value=store.value,
                    windows=f"of {size_ms} ms" if store.type == "window" else "",
                )
    return found


def _difference(kept: StoreContent, wanted: StoreContent) -> str:
    """Return what differs between two contents, in words; "" if nothing does."""
    compared = (
        ("is a", kept.family, wanted.family),
        ("has windows", kept.windows, wanted.windows),
        ("has keys by the serde", kept.key, wanted.key),
    )
    differences = [
        f"it {what} {before}, and now {now} is wanted"
        for what, before, now in compared
        if before != now and (what != "has windows" or kept.family == wanted.family)
    ]
    if len(kept.sides) == len(wanted.sides) == 2:
        (had, others), (has, _) = kept.sides, wanted.sides
        if has == others != had:
            differences.append(
                f"it has the records of {' and '.join(had)}, and now those of the other side of "
                f"the join are wanted, {' and '.join(has)}"
            )
    if kept.parts and wanted.parts and kept.parts != wanted.parts:
        differences.append(
            f"it has {' and '.join(kept.parts)}, and now {' and '.join(wanted.parts)} is wanted"
        )
    return "; ".join((*differences, *_format_differences(kept, wanted)))


def _format_differences(kept: StoreContent, wanted: StoreContent) -> Iterator[str]:
    """Yield why the values that may be there cannot be read, in words."""
    now = wanted.format
    if kept.format > now:
        yield (
            f"its values have format {kept.format}, and now {now} is wanted: give it format "
            f"{kept.format} or a later one, or restore a savepoint from before"
        )
        return
    read = wanted.formats
    for number, serde in kept.formats.items():
        of_format = f" of format {number}" if now > 1 else ""
        if number not in read:
            yield (
                f"it may have values of format {number}, and now {now} is wanted without an "
                "`upgrade`"
            )
        elif read[number] != serde:
            yield (
                f"it has values{of_format} by the serde {serde}, and now {read[number]} is wanted"
            )
