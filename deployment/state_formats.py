"""Which processors may keep their state in another format from now on: nothing here asks Kafka."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import (
    ClassSpec,
    CodeSpec,
    DataFrameSpec,
    ProcessorSpec,
    SparkSpec,
)


def may_change(before: Pipeline, after: Pipeline) -> dict[str, str]:
    """Return why the state of processors may get another format, by processor.

    Only state counts that both versions keep in the same topics. A change of user code that keeps
    its name, or of its `config`, cannot be seen here.
    """
    former = {each.id: each for each in before.processors}
    found = {}
    for processor in after.processors:
        had = former.get(processor.id)
        if had is None:
            continue
        shared = set(before.state_topics(had)).intersection(after.state_topics(processor))
        if shared and (why := next(_changes(had.spec, processor.spec, shared), "")):
            found[processor.id] = why
    return found


def _changes(before: ProcessorSpec, after: ProcessorSpec, stores: set[str]) -> Iterator[str]:
    if type(before) is not type(after):
        yield f"it was {before.what}, and becomes {after.what}"
    elif isinstance(before, SparkSpec):
        if _without_limits(before) != _without_limits(after):
            what = "function" if isinstance(before, DataFrameSpec) else "query"
            yield f"its {what} changes"
    elif isinstance(before, CodeSpec) and isinstance(after, CodeSpec):
        if before.code != after.code:
            yield f"{before.code} becomes {after.code}"
        if isinstance(before, ClassSpec) and isinstance(after, ClassSpec):
            kept = {store.name: store for store in before.stores if store.name in stores}
            for store in after.stores:
                if kept.get(store.name, store) != store:
                    yield f'the store "{store.name}" changes'


def _without_limits(spec: ProcessorSpec) -> ProcessorSpec:
    """Return a spec without what only says how fast it works."""
    return structs.replace(spec, max_process_time_ms=1, max_task_idle_ms=0, buffered_records=1)
