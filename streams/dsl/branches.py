"""The step that divides a stream into several (KIP-418)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.stateless import PassPart, Stateless, chain_name, selected, unused
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.engine.nodes import NamedPart
from kafka_pipeline.streams.record import Batch, Record, items_of

Predicate = Callable[[Any, Any], Any]


class Branching(NamedPart):
    """Finds the branch of a record, by the name of the node that begins it."""

    def __init__(
        self, name: str, predicates: Sequence[tuple[str, Predicate]], default: str
    ) -> None:
        """A record without a branch goes to the node `default`, or nowhere if that is ""."""
        self.name = name
        self._predicates = predicates
        self._default = default

    def choose(self, key: Any, value: Any) -> str:
        """Return the node of the first branch whose predicate holds."""
        for node, predicate in self._predicates:
            if predicate(key, value):
                return node
        return self._default


class Splitter(EitherWay):
    """Forwards each record to the node of its branch."""

    def __init__(self, branching: Branching) -> None:
        self._branching = branching

    def process(self, batch: Batch) -> None:
        choose = self._branching.choose
        nodes = list(map(choose, items_of(batch.keys), items_of(batch.values)))
        for node in dict.fromkeys(nodes):
            if node:
                self.context.forward(selected(batch, [each == node for each in nodes]), node)

    def process_record(self, record: Record) -> None:
        node = self._branching.choose(record.key, record.value)
        if node:
            self.context.forward(record, node)


@dataclass(frozen=True, slots=True)
class Split(Operation):
    """Gives each record to the first branch whose predicate holds, in order."""

    verb = "split"

    predicates: Mapping[str, Predicate]
    default: str | None

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add a processor, which forwards to the nodes that begin the branches."""
        nodes = {
            child.operation.branch: chain_name(child, compiler)
            for child in compiler.children(step)
            if isinstance(child.operation, Branch)
        }
        branching = partial(
            Branching,
            step.name,
            [(nodes[branch], predicate) for branch, predicate in self.predicates.items()],
            "" if self.default is None else nodes[self.default],
        )
        compiler.builder.add_processor(
            step.name, partial(_make_splitter, branching), compiler.parents(step)
        )
        compiler.produces(step, step.name)


@dataclass(frozen=True, slots=True)
class Branch(Stateless):
    """The beginning of one of the streams that a split makes."""

    branch: str = ""


def branch(name: str) -> Branch:
    """Return the step that begins a branch."""
    return Branch(f"split.{name}", PassPart, unused, branch=name)


def _make_splitter(branching: Callable[[], Branching]) -> Splitter:
    return Splitter(branching())
