"""How the groups of a task are kept, if the query has changed since.

A layout says which functions the buffers of a group belong to. After a change, each group stays in
the layout that it has until it is read, and is put back in that of the query.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.arrow_bytes import unpacked
from kafka_pipeline.streams.sql.kept_shape import LAYOUT, KeptShape, kept_content
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_change import (
    HAD_DISTINCT,
    is_wider_function,
    state_change,
)
from kafka_pipeline.streams.sql.state_shape import StateShape, row_mark

Content = Mapping[str, Any]


class KeptLayouts(KeptShape):
    """The content of a state of groups, and the layouts in which these were kept.

    A label names a function in all layouts: the expression with which it began. So it stays the
    same if a column gets another name.
    """

    def __init__(self, shape: StateShape, route: str, context: ProcessorContext) -> None:
        """Raise `QueryError` if the state was kept for another query that cannot be converted."""
        content = kept_content(shape, route)
        super().__init__(content, state_change, context)
        self._shape = shape
        self._now = now = _labelled(json.loads(content), self.kept)
        self._content = json.dumps(now, sort_keys=True)
        self.tag = _tag(now)
        """What values that are put now name as their layout."""
        layouts = {
            bytes.fromhex(key.removeprefix(LAYOUT)): json.loads(value)
            for key, value in self._store.all()
            if key.startswith(LAYOUT)
        }
        self._layouts = {**layouts, self.tag: now}
        self._converters: dict[bytes, _Converter] = {}

    def record(self) -> None:
        """Put the content, and the layouts."""
        super().record()
        for tag, content in self._layouts.items():
            key, value = f"{LAYOUT}{tag.hex()}", json.dumps(content, sort_keys=True)
            if self._store.get(key) != value:
                self._store.put(key, value)

    @cached_property
    def tags(self) -> Mapping[bytes, bytes]:
        """The tags of layouts by the marks of rows that a processor sends; see `row_mark`."""
        found = {row_mark(content): tag for tag, content in self._layouts.items()}
        # Rows of functions with the same types look the same: those that come now are of the query.
        return {**found, row_mark(self._now): self.tag}

    @cached_property
    def marks_of_distinct(self) -> Collection[bytes]:
        """The marks of rows that have distinct values after their buffers."""
        return {row_mark(each) for each in self._layouts.values() if "distinct" in each}

    def converted(self, tags: Sequence[bytes], buffers: Sequence[bytes]) -> Sequence[bytes]:
        """Return buffers of groups as the query has them; the `tags` are those of their layouts.

        Raises `QueryError` for a layout that is not known.
        """
        others = {*tags} - {self.tag}
        if not others:
            return buffers
        found = [*buffers]
        for tag in others:
            places = [place for place, each in enumerate(tags) if each == tag]
            made = self._converter(tag).converted([buffers[place] for place in places])
            for place, value in zip(places, made, strict=True):
                found[place] = value
        return found

    def _converter(self, tag: bytes) -> _Converter:
        if tag not in self._converters:
            if tag not in self._layouts:
                raise QueryError("groups are kept in a layout that the store does not describe")
            self._converters[tag] = _Converter(self._layouts[tag], self._now, self._shape)
        return self._converters[tag]


class _Converter:
    """Makes buffers of one layout those of another."""

    def __init__(self, before: Content, now: Content, shape: StateShape) -> None:
        self._before = RowCodec(unpacked(before["buffers"]))
        self._now = RowCodec(shape.buffers)
        self._empty = shape.empty
        former = dict(zip(before["labels"], _functions(before), strict=True))
        self._sources = list[int | None]()
        """The column that each one is made of; `None` for that of a group without records."""
        for label, (type_, start, end) in zip(now["labels"], _functions(now), strict=True):
            found = former.get(label)
            if found is None or not is_wider_function(found[0], type_):
                self._sources += [None] * (end - start)
            else:
                self._sources += range(found[1], found[2])

    def converted(self, buffers: Sequence[bytes]) -> list[bytes]:
        """Return the buffers of groups, any number of them."""
        table = self._before.decode(buffers)
        none = pa.array(np.zeros(len(buffers), np.int64))
        columns = [
            self._empty.column(place).take(none)
            if source is None
            else table.column(source).cast(field.type)
            for place, (field, source) in enumerate(
                zip(self._now.schema, self._sources, strict=True)
            )
        ]
        return self._now.encode(pa.Table.from_arrays(columns, schema=self._now.schema))


def _tag(content: Content) -> bytes:
    """Return what is the same for contents whose groups have the same bytes."""
    order = (content.get("best") or [])[1:]
    described = [content["groups"], content["functions"], content["labels"], order]
    return hashlib.sha256(json.dumps(described).encode()).digest()[:8]


def _labelled(now: Content, kept: str | None) -> Content:
    """Return the content of a query with the labels that its functions have in the state."""
    labels = list(now["expressions"])
    if kept is not None:
        former = json.loads(kept)["labels"]
        sources = state_change(kept, json.dumps(now)).sources
        for at, source in enumerate(sources):
            if source is not None:
                labels[at] = former[source]
    had_distinct = kept is not None and {"distinct", HAD_DISTINCT} & json.loads(kept).keys()
    ended = {HAD_DISTINCT: True} if had_distinct and "distinct" not in now else {}
    return {**now, **ended, "labels": labels}


def _functions(content: Content) -> list[tuple[str, int, int]]:
    """Return the functions of a layout, with the places of their first buffer and the next one."""
    ends = list(accumulate(content["sizes"]))
    starts = [0, *ends[:-1]] if ends else []
    return list(zip(content["functions"], starts, ends, strict=True))
