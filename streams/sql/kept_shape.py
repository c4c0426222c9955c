"""What the state of a task was kept for, in a store of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import SHAPE_STORE
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.arrow_bytes import packed, unpacked
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError, StateChange
from kafka_pipeline.streams.sql.state_shape import StateShape
from kafka_pipeline.streams.stores import KeyValueStore

LAYOUT = "layout"
"""How the keys of former layouts begin; see `KeptLayouts`."""

_CONTENT = "content"


class KeptShape:
    """The content of a state: text that is the same for queries that can go on with it."""

    def __init__(
        self, content: str, change: Callable[[str, str], StateChange], context: ProcessorContext
    ) -> None:
        """Raise `QueryError` if the state was kept for a query with another content.

        `change` compares the content that was kept with this one.
        """
        self._store: KeyValueStore[str, str] = context.get_state_store(SHAPE_STORE)
        self._content = content
        self._kept_in: int | None = None
        """The generation of the store in which all of it was recorded."""
        self.kept = kept = self._store.get(_CONTENT)
        """The content with which the state was kept; `None` if nothing is."""
        if kept is not None and (changed := change(kept, content).different):
            raise QueryError(
                f"the state was kept for another query: {changed}. Go back to the former query, or "
                "give the processor another id, with which it begins without state; see "
                'docs/how-to/change_a_pipeline.md, "Change what a processor keeps"'
            )

    def keep(self) -> None:
        """Record what the state is kept for, with the first change of the state after a start."""
        if self._kept_in != self._store.generation:
            self.record()
            self._kept_in = self._store.generation

    def record(self) -> None:
        """Put what the store does not have yet."""
        if self._store.get(_CONTENT) != self._content:
            self._store.put(_CONTENT, self._content)


def kept_content(shape: StateShape, route: str) -> str:
    """Return what a state is kept for, with what `KeyColumn` and `KeptLayouts` need.

    The `route` says how the records of a group meet.
    """
    others = {
        "key_column": shape.key_column,
        "key_columns": packed(shape.keys),
        "buffers": packed(shape.buffers),
        "route": route,
    }
    return json.dumps({**json.loads(shape.content), **others}, sort_keys=True)


class KeyColumn:
    """Finds the key of the records of a group in the group's key in a store.

    So a state can be spread over other tasks.
    """

    def __init__(self, content: str) -> None:
        """Raise `ValueError` if the content does not say which column that is."""
        values = json.loads(content)
        if not values.get("key_column"):
            raise ValueError("it was kept by a version that did not record which column is the key")
        self._column = values["key_column"]
        self._codec = RowCodec(unpacked(values["key_columns"]))

    def of(self, keys: Sequence[bytes]) -> pa.BinaryArray:
        """Return the key of the records of each group. Raises `ValueError` for other bytes."""
        column = self._codec.decode(keys)[self._column].combine_chunks()
        found: pa.BinaryArray = column.cast(pa.binary())
        return found
