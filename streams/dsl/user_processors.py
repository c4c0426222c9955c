"""Steps that run a processor of the user's: `process` and `process_values` (KIP-820)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from streams.dsl.graph import Compiling, Operation, Step
from streams.engine.nodes import Supplier
from streams.errors import StreamsError
from streams.processor import Processor, ProcessorContext
from streams.record import Batch, Record
from streams.stores import StoreBuilder


@dataclass(frozen=True, slots=True)
class Process(Operation):
    """Runs a processor. `used` has its stores: definitions, or names of stores added before."""

    verb = "process"
    runs_user_processor = True

    supplier: Supplier
    used: tuple[StoreBuilder[Any, Any] | str, ...] = ()

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores."""
        return tuple(each if isinstance(each, str) else each.name for each in self.used)

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor and its stores."""
        for store in self.used:
            if not isinstance(store, str):
                compiler.add_store(store)
        compiler.builder.add_processor(
            step.name, self.supplied(step), compiler.parents(step), stores=self.stores()
        )
        compiler.produces(step, step.name)

    def supplied(self, step: Step) -> Supplier:
        """Return the supplier of the processor that runs."""
        return self.supplier


class ProcessValues(Process):
    """Runs a processor that must not change the key."""

    __slots__ = ()

    verb = "process_values"

    def supplied(self, step: Step) -> Supplier:
        """Return the supplier of a processor that watches the key."""
        return partial(_keeping_keys, step.name, self.supplier)


def _keeping_keys(name: str, supplier: Supplier) -> Processor:
    processor = supplier()
    if not isinstance(processor, Processor):
        raise StreamsError(
            f'step "{name}": process_values runs a Processor, not a {type(processor).__name__}'
        )
    return KeyKeeper(name, processor)


class KeyKeeper(Processor):
    """Runs another processor, and refuses what it forwards under another key."""

    def __init__(self, name: str, inner: Processor) -> None:
        self._name = name
        self._inner = inner

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._watched = _KeyContext(self._name, context)
        self._inner.init(cast(ProcessorContext, self._watched))

    def process(self, record: Record) -> None:
        self._watched.key = record.key
        self._watched.is_processing = True
        try:
            self._inner.process(record)
        finally:
            self._watched.is_processing = False

    def close(self) -> None:
        self._inner.close()


class _KeyContext:
    """The context of a processor that keeps keys; all but `forward` goes to the real one."""

    def __init__(self, name: str, context: ProcessorContext) -> None:
        self._name = name
        self._context = context
        self.key: Any = None
        self.is_processing = False

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._context, attribute)

    def forward(self, record: Record | Batch, child: str | None = None) -> None:
        """Forward a record with the key of the one in hand."""
        if not self.is_processing or not isinstance(record, Record) or record.key != self.key:
            raise StreamsError(
                f'step "{self._name}": process_values forwards records with the key of the record '
                "that it processes, from process; use process to forward others"
            )
        self._context.forward(record, child)
