"""What the state of a query is kept for, in its store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kafka_pipeline.common.pipelines.specs import SHAPE_STORE
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.kept_shape import KeptShape
from kafka_pipeline.streams.sql.spec import StateChange
from kafka_pipeline.streams.sql.state_stores import shape_store


def test_what_a_state_is_kept_for_is_recorded_again_if_that_was_undone() -> None:
    builder = shape_store()
    data = builder.open_in_memory()
    store: Any = builder.build(data)
    context = SimpleNamespace(get_state_store={SHAPE_STORE: store}.__getitem__)
    shape = KeptShape("{}", lambda before, now: StateChange(), cast("ProcessorContext", context))
    shape.keep()
    assert data.uncommitted == {b"content": b"{}"}
    data.undo()
    assert not data.uncommitted
    shape.keep()
    assert data.uncommitted == {b"content": b"{}"}
