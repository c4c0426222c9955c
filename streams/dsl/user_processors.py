"""Steps that run a user's processor: `process` and `process_values` (KIP-820)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.engine.left_undone import refuse_lost
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.engine.running_node import Receiver, check_methods, init
from kafka_pipeline.streams.errors import SerializationError, StreamsError
from kafka_pipeline.streams.processor import Processor, ProcessorContext
from kafka_pipeline.streams.record import Batch, Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder

_IMMUTABLE = frozenset((str, bytes, int, float, bool, UUID, type(None)))
"""Immutable types of keys, which need no check after the call."""


@dataclass(frozen=True, slots=True)
class Process(Operation):
    """Runs a processor. `used` has its stores: definitions, or names of stores added before."""

    verb = "process"
    runs_user_processor = True

    supplier: Supplier
    used: tuple[StoreBuilder[Any, Any] | str, ...] = ()

    def stores(self) -> tuple[str, ...]:
        return tuple(each if isinstance(each, str) else each.name for each in self.used)

    def compile(self, step: Step, compiler: Compiling) -> None:
        for store in self.used:
            if not isinstance(store, str):
                compiler.add_store(store)
        compiler.runs(step, self.supplied(step))

    def supplied(self, step: Step) -> Supplier:
        """Return the supplier of the processor that runs."""
        return self.supplier


class ProcessValues(Process):
    """Runs a processor that must not change the key."""

    __slots__ = ()

    verb = "process_values"

    def supplied(self, step: Step) -> Supplier:
        """Return the supplier of a processor that watches the key."""
        return partial(_keeping_keys, step.name, self.supplier, step.key_serde)


def _keeping_keys(name: str, supplier: Supplier, key_serde: Serde[Any]) -> Processor:
    processor = supplier()
    if not isinstance(processor, Processor):
        raise StreamsError(
            f'step "{name}": process_values runs a Processor, not a {type(processor).__name__}'
        )
    check_methods(name, processor)
    return KeyKeeper(name, processor, key_serde)


class KeyKeeper(Processor):
    """Runs another processor, and refuses what it forwards under another key."""

    def __init__(self, name: str, inner: Processor, key_serde: Serde[Any]) -> None:
        self._name = name
        self._inner = inner
        self._key_serde = key_serde

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._watched = _KeyContext(self._name, context, self._key_serde)
        init(self._inner, self._watched)

    def process(self, record: Record) -> None:
        process: Receiver = self._inner.process
        self._watched.watch(record.key)
        self._watched.is_processing = True
        try:
            if (returned := process(record)) is not None:
                refuse_lost(process, returned)
        finally:
            self._watched.is_processing = False

    def close(self) -> None:
        self._inner.close()


class _KeyContext:
    """The context of a processor that keeps keys; all but `forward` goes to the real one.

    A key is its bytes: `1` and `True` are two, and a list that was changed is another one. Keys
    that the serde of the step cannot write reach no topic and no store as they are; only they are
    compared with `==`.
    """

    def __init__(self, name: str, context: ProcessorContext, key_serde: Serde[Any]) -> None:
        self._name = name
        self._context = context
        self._write_key = key_serde.serialize
        self.is_processing = False

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._context, attribute)

    def watch(self, key: Any) -> None:
        """Take the key of the record that is processed next."""
        self._key = key
        self._is_immutable = key.__class__ in _IMMUTABLE
        self._key_data = None if self._is_immutable else self._written(key)

    def forward(self, record: Record | Batch, child: str | None = None) -> None:
        """Forward a record with the key of the one in hand."""
        if (
            not self.is_processing
            or not isinstance(record, Record)
            or not self._is_watched(record.key)
        ):
            raise StreamsError(
                f'step "{self._name}": process_values forwards records with the key of the record '
                "that it processes, from process; use process to forward others"
            )
        self._context.forward(record, child)

    def _is_watched(self, key: Any) -> bool:
        if key is self._key and self._is_immutable:
            return True
        data = self._written(key)
        if self._is_immutable:
            self._key_data = self._written(self._key)
        return key == self._key if data is None else data == self._key_data

    def _written(self, key: Any) -> bytes | None:
        try:
            return None if key is None else self._write_key(key)
        except SerializationError:
            return None
