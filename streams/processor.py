"""The contract between a task and the processor that it runs, and the built-in types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from common.nodes import ProcessorType
from common.record_batch import RecordBatch
from streams.count import CountProcessor
from streams.forward import ForwardProcessor
from streams.results import Results
from streams.stores.rocksdb import KeyValueStore
from streams.sum import SumProcessor


class BatchProcessor(Protocol):
    """Turns records into output values, one per record, in order.

    A processor belongs to one task and is called by one thread. Splitting a batch must not
    change what it emits: `process(a + b)` equals `process(a)` followed by `process(b)`.
    """

    def process(self, batch: RecordBatch, start: int) -> Results:
        """Process the records of `batch` from index `start` on.

        Stops at the first record that it rejects and leaves no trace of that one in its state;
        the caller deals with it (`on_error`) and calls again with the index behind it.
        """


def create_processor(
    type_: ProcessorType, config: Mapping[str, Any], store: KeyValueStore | None
) -> BatchProcessor:
    """Make the processor of a pipeline.yaml entry; `store` is required where it is stateful."""
    if type_ is ProcessorType.FORWARD:
        return ForwardProcessor()
    if type_ is ProcessorType.SUM:
        return SumProcessor(constant=config.get("constant", 1))
    assert store is not None, "count needs a state store"
    return CountProcessor(store)
