"""What grouped streams and tables have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol

from kafka_pipeline.streams.dsl.graph import Graph, Operation, Step
from kafka_pipeline.streams.dsl.stream_steps import StreamSteps
from kafka_pipeline.streams.dsl.table_values import TableValues
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import K, V

if TYPE_CHECKING:
    from kafka_pipeline.streams.dsl.streams_and_tables import Table


class TableMaker(Protocol):
    """Makes the table of a step; the class `Table`."""

    def __call__(
        self, graph: Graph, step: Step, values: TableValues, is_versioned: bool = False
    ) -> Table: ...


class Grouped(Generic[K, V]):
    """A stream by key, with the name and the serdes of its repartition topic."""

    def __init__(
        self,
        stream: StreamSteps[K, V],
        name: str | None,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
    ) -> None:
        """For the DSL itself."""
        self.graph = stream.graph
        self.key_serde = key_serde or stream.step.key_serde
        self.value_serde = value_serde or stream.step.value_serde
        self._stream = stream
        self._name = name

    def keyed(self) -> Step:
        """Return the step whose records are in the partitions of their keys."""
        return self._stream.keyed(
            self._name, key_serde=self.key_serde, value_serde=self.value_serde
        )


def add_stateful(
    graph: Graph,
    verb: str,
    name: str | None,
    parent: Step,
    operation: Callable[[str], Operation],
    *,
    key_serde: Serde[Any] | None = None,
    value_serde: Serde[Any] | None = None,
) -> Step:
    """Add a step with a store; `operation` takes the store's name, which is the step's."""
    name = graph.required_name(verb, name, parent, "its store")
    store = name or graph.generated_name(verb, parent)
    return graph.add(
        operation(store), [parent], store, key_serde=key_serde, value_serde=value_serde
    )
