"""Which arcs a change gives records of another form, that only their new readers are to get.

Values only. A form is a serde, or for a query the shape of its rows, as far as pipelines say it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    ClassSpec,
    DataFrameSpec,
    ForwardSpec,
    SparkSpec,
    SqlSpec,
    TopologySpec,
)
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.common.typed_json import dump


class Form(NamedTuple):
    """How keys or values are written: in words, and what else these do not say."""

    text: str
    detail: str = ""


class _Forms(NamedTuple):
    keys: frozenset[Form]
    values: frozenset[Form]


def changed_forms(before: Pipeline, after: Pipeline) -> dict[str, str]:
    """Return the arcs of both whose waiting records new readers might misread, and what changes.

    An arc is one of them if its records get another form and its reader changes, or passes them on
    to such an arc. A reader that stays reads them as it always did. If only a reader changes, the
    records that wait are like those that follow. Versions that an earlier engine has written may
    not say the forms: then these are not compared.
    """
    former, now = before.arcs, after.arcs
    shared = [topic for topic, reader in former.items() if now.get(topic) == reader]
    had, has = _Writers(before), _Writers(after)
    different = {
        topic: text for topic in shared if (text := _difference(had.forms(topic), has.forms(topic)))
    }
    found: dict[str, str] = {}
    while new := {
        topic: text
        for topic, text in different.items()
        if topic not in found and _is_affected(before, after, former[topic], found)
    }:
        found |= new
    return {topic: f"{text}. {_read(after, former[topic])}" for topic, text in found.items()}


def _is_affected(before: Pipeline, after: Pipeline, reader: str, found: Collection[str]) -> bool:
    was, is_ = before.processor(reader), after.processor(reader)
    # The code of a topology, which has both ends of its internal topics, may keep its name.
    if was.spec != is_.spec or isinstance(is_.spec, TopologySpec):
        return True
    return not set(before.out_topics(was)).isdisjoint(found)


class _Writers:
    """What the writers of a pipeline's arcs write."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._arcs = pipeline.arcs
        self._writers: dict[str, list[tuple[PipelineProcessor, str]]] = {}
        for processor in pipeline.processors:
            topics = pipeline.out_topics(processor)
            for name, topic in zip(processor.to, topics, strict=True):
                self._writers.setdefault(topic, []).append((processor, name))

    def forms(self, topic: str) -> _Forms | None:
        """Return the forms of an arc's records; `None` if the pipeline does not say them all."""
        keys, values = self._of(topic, "key"), self._of(topic, "value")
        return None if keys is None or values is None else _Forms(keys, values)

    def _of(self, topic: str, part: str) -> frozenset[Form] | None:
        found: set[Form] = set()
        seen, waiting = {topic}, [topic]
        while waiting:
            here = waiting.pop()
            if here not in self._arcs:
                found.add(Form(BYTES, f"of {here}"))
                continue
            for processor, name in self._writers.get(here, ()):
                own = _written(processor, name, part)
                if own is None:
                    return None
                if own.text:
                    found.add(own)
                if own.text in ("", BYTES) or isinstance(processor.spec, SparkSpec):
                    # It may be what came in, as it was.
                    new = {*self._pipeline.in_topics(processor)} - seen
                    seen |= new
                    waiting += new
        return frozenset(found)


def _written(processor: PipelineProcessor, name: str, part: str) -> Form | None:
    """Return the form of the keys or values that a processor writes; "" passes on what came."""
    match processor.spec:
        case ClassSpec(serdes=serdes, code=code):
            serde = serdes.out_key if part == "key" else serdes.out_value
            return Form(str(serde), code if serde == BYTES else "")
        case TopologySpec(serdes=of_topics):
            return Form(getattr(of_topics[name], part)) if name in of_topics else None
        case SqlSpec(front=SqlSpec() as spec) | (SparkSpec() as spec):
            return Form(f"rows of a query as {spec.format}", _shape(spec))
        case ForwardSpec():
            return Form("")
        case spec:
            return Form("" if part == "key" else f"results of {spec.type}")


def _shape(spec: SparkSpec) -> str:
    """Return text that differs for specs whose rows may have other columns."""
    query = spec.query if isinstance(spec, SqlSpec) else ""
    code = [spec.code, spec.config] if isinstance(spec, DataFrameSpec) else []
    schemas = [spec.schema, dict(spec.schemas) if isinstance(spec, SqlSpec) else {}]
    # Without a schema, the columns are those of what is read.
    tables = {
        name: table.schema or [table.format, table.path, dict(table.options)]
        for name, table in spec.tables.items()
    }
    topic_tables = {name: table.schema for name, table in spec.topic_tables.items()}
    groups = [spec.grouping.window, spec.grouping.stage] if spec.grouping else []
    signs = isinstance(spec, SqlSpec) and _signs(spec)
    return dump([query, code, schemas, tables, topic_tables, groups, signs]).decode()


def _signs(spec: SqlSpec) -> Sequence[str] | bool:
    """Return whose rows may be taken out again."""
    return spec.join.changing if spec.join is not None and spec.join.changing else spec.changelog


def _difference(had: _Forms | None, has: _Forms | None) -> str:
    """Return what changes about an arc's records, in words; "" if nothing does, or if unknown."""
    if had is None or has is None:
        return ""
    changes: dict[str, list[str]] = {}
    for what, was, now in (("keys", had.keys, has.keys), ("values", had.values, has.values)):
        if was != now:
            changes.setdefault(_change(_words(was), _words(now)), []).append(what)
    return "; ".join(f"its {' and '.join(parts)} {change}" for change, parts in changes.items())


def _words(forms: frozenset[Form]) -> str:
    return " or ".join(dict.fromkeys(form.text for form in sorted(forms)))


def _change(was: str, now: str) -> str:
    if was == now:
        return f"stay {now}, but are written in another way"
    return f"were {was}, and now are {now}"


def _read(pipeline: Pipeline, reader: str) -> str:
    """Return how the new version reads an arc, in words."""
    match pipeline.processor(reader).spec:
        case ClassSpec(serdes=serdes):
            return f"{reader} reads keys by {serdes.key} and values by {serdes.value}"
        case SparkSpec(format=format_):
            return f"{reader} reads values by the schema and format ({format_}) of its query"
    return f"{reader} reads what its writers write"
