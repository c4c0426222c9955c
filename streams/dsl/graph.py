"""The logical graph: what the calls of the DSL say, before it becomes nodes of a topology."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from kafka_pipeline.common.names import name_problem
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.engine.builder import TopologyBuilder
from kafka_pipeline.streams.engine.left_undone import is_async, never_run
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder

ANY_TOPIC = "*"
_WITHOUT_VALUE = ("filter", "filter_not", "for_each", "peek", "split")
"""How verbs end whose function returns neither a key nor a value."""


class Operation(ABC):
    """What a step does. Each kind of step is a frozen dataclass that extends this class.

    A new kind of step needs nothing else: the compiler asks the operation for everything.
    """

    @property
    @abstractmethod
    def verb(self) -> str:
        """The method of the DSL that adds the step, such as `filter`."""

    runs_user_processor: ClassVar[bool] = False
    """Whether the step needs its records one by one, with the context of each."""

    begins_group: ClassVar[bool] = False
    """Whether a topic is between the step's parents and the step's children."""

    restores_order: ClassVar[bool] = False
    """Whether the step is a `MeetingPoint` of its parents' records."""

    needs_time: ClassVar[bool] = True
    """Whether event time matters to the step, or to what gets its results by a topic."""

    keeps_places: ClassVar[bool] = False
    """Whether the batches of the step have the `offsets` of those that it gets."""

    by_key: bool = True
    """Whether equal keys are in equal partitions of the topic of a step that has one."""

    @property
    def keeps_history(self) -> bool:
        """Whether the step keeps versions, which become too old by event time."""
        return False

    @property
    def takes_null_keys(self) -> bool:
        """Whether records without a key matter, so that a repartition ahead keeps them."""
        return False

    @property
    def close_delay_ms(self) -> int | None:
        """How long after its end a window of this step closes; `None` if it makes no windows."""
        return None

    @property
    def window_ms(self) -> int:
        """How much older than the end of its window a result of this step can be."""
        return 0

    @abstractmethod
    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the step's nodes to `compiler.builder`, with the nodes of its parents as parents.

        A step that forwards records calls `compiler.produces` with the name of its last node.
        """

    def after_key(self, parents: Sequence[Step]) -> int:
        """Return how many bytes of the step's keys follow the key that decides their task.

        Those are the times of windows, until a topic is between.
        """
        return parents[0].after_key if parents else 0

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores that the step's processors use."""
        return ()

    def stores_reached_from(self, parent: int) -> tuple[str, ...]:
        """Return the stores that the records of one parent, by its number, read or write here."""
        return self.stores()

    @property
    def common_origins(self) -> tuple[Step, ...]:
        """The tables whose changes may reach this step through several of its parents."""
        return ()

    @property
    def writes_topic(self) -> str | None:
        """The topic that the step writes, `ANY_TOPIC` if a function chooses it, else `None`."""
        return None

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return whether parents must send the old value of a change with the new one.

        `sends_old_values` says whether a child needs the old values of this step.
        """
        return False

    def needs_old_values_of(self, parent: int, sends_old_values: bool) -> bool:
        """Return what `needs_old_values` returns, for one parent of several."""
        return self.needs_old_values(sends_old_values)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One call of the DSL. Steps are compared by identity."""

    operation: Operation
    parents: tuple[Step, ...]
    name: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    key_changed: bool
    """Whether the key was changed, and no repartition topic has come since."""
    after_key: int
    """How many bytes of a serialized key follow the one that decides about the task."""

    def __repr__(self) -> str:
        return f'{self.operation.verb} "{self.name}"'


class Compiling(Protocol):
    """What operations need of the compiler."""

    builder: TopologyBuilder

    def children(self, step: Step) -> list[Step]:
        """Return the steps that go on from a step, in the order of the calls."""

    def parents(self, step: Step) -> list[str]:
        """Return the nodes that a step's first node has as parents."""

    def output(self, step: Step) -> str:
        """Return the node that forwards what a step produces; it must have been recorded."""

    def runs(
        self,
        step: Step,
        supplier: Supplier,
        parents: Sequence[str] | None = None,
        *,
        holds_ms: int = 0,
        looks_up: bool = False,
    ) -> None:
        """Add the processor of a step, under its name; it forwards what the step produces.

        The rest is as in `TopologyBuilder.add_processor`; by default, the parents are those of the
        step.
        """

    def produces(self, step: Step, node: str) -> None:
        """Record the node that forwards what a step produces."""

    def sends_old_values(self, step: Step) -> bool:
        """Return whether a child needs the old values of a step's changes."""

    def users(self, store: str) -> list[Step]:
        """Return the steps that use a store, by its name."""

    def add_store(self, store: StoreBuilder[Any, Any], more_ms: int = 0) -> None:
        """Add a store unless another step has; its windows are kept longer by `more_ms`."""


class Graph:
    """The steps so far, in the order of the calls: parents come before children."""

    def __init__(
        self,
        key_serde: Serde[Any] = serdes.bytes,
        value_serde: Serde[Any] = serdes.bytes,
        allow_generated_names: bool = False,
        caching: bool = False,
    ) -> None:
        """`key_serde` and `value_serde` are for steps whose type is not known otherwise."""
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.allow_generated_names = allow_generated_names
        self.caching = caching
        """Whether tables forward the newest update of each key in a batch only."""
        self.steps: list[Step] = []
        self.tables: set[Step] = set()
        """The steps that forward the changes of a table."""
        self.is_built = False
        self.shared: dict[Any, Step] = {}
        """Steps that several calls share, such as the repartition of one stream."""
        self._anchors: dict[Step, str] = {}
        """For each step, the name of its nearest named ancestor or of itself."""
        self._names: dict[str, str] = {}

    def add(
        self,
        operation: Operation,
        parents: Sequence[Step],
        name: str | None = None,
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        key_changed: bool | None = None,
    ) -> Step:
        """Append a step; by default, serdes and `key_changed` are those of the first parent.

        Without a name, it gets one from its nearest named ancestor, which matters to no state.
        Raises `TopologyError` for a name that is taken or invalid, a parent of another builder, and
        after `build`.
        """
        for parent in parents:
            if parent not in self._anchors:
                raise TopologyError(
                    f"{operation.verb} after {parent!r}: that step belongs to another "
                    "StreamsBuilder; make both with one builder"
                )
        first = parents[0] if parents else None
        step = Step(
            operation,
            tuple(parents),
            self.take_name(operation.verb, name, first),
            key_serde or (first.key_serde if first else self.key_serde),
            value_serde or (first.value_serde if first else self.value_serde),
            (any(p.key_changed for p in parents) if key_changed is None else key_changed),
            operation.after_key(parents),
        )
        for what, serde in (("key_serde", step.key_serde), ("value_serde", step.value_serde)):
            if not isinstance(serde, Serde):
                raise TopologyError(
                    f"{step!r}: the {what} is a {type(serde).__name__}: use one of "
                    "kafka_pipeline.serdes, or make a kafka_pipeline.serdes.Serde"
                )
        self.steps.append(step)
        self._anchors[step] = step.name if name or first is None else self._anchors[first]
        return step

    def add_stateful(
        self,
        verb: str,
        name: str | None,
        parent: Step,
        operation: Callable[[str], Operation],
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Step:
        """Add a step with a store; `operation` takes the store's name, which is the step's."""
        store = self.state_name(verb, name, parent, "its store")
        return self.add(
            operation(store), [parent], store, key_serde=key_serde, value_serde=value_serde
        )

    def take_name(self, verb: str, name: str | None, parent: Step | None) -> str:
        """Reserve the name of a step, or make one for it."""
        if self.is_built:
            what = f'{verb} "{name}"' if name else verb
            raise TopologyError(f"{what} comes after build(): add all steps first, then build")
        if name is None:
            name = self.generated_name(verb, parent)
        elif not isinstance(name, str):
            raise TopologyError(f"the name of a step is a string, but {verb} has {name!r}")
        elif problem := name_problem(name):
            raise TopologyError(f'{verb} "{name}": its name {problem}')
        elif name in self._names:
            raise TopologyError(
                f'two steps have the name "{name}": a {self._names[name]} and a {verb}; '
                "rename one of them"
            )
        self._names[name] = verb
        return name

    def required_name(self, verb: str, name: str | None, parent: Step, why: str) -> str | None:
        """Return `name`; refuse a step without one unless names may be generated.

        `why` says what is called after the step: "its store".
        """
        if name is None and not self.allow_generated_names:
            raise TopologyError(
                f'this {verb} after "{parent.name}" needs a name for {why}: give '
                f'{verb}(…, name="…"), or allow_generated_names=True to the StreamsBuilder; '
                "generated names change when steps are added, and state is lost then"
            )
        return name

    def state_name(self, verb: str, name: str | None, parent: Step, why: str) -> str:
        """Return `required_name`, or a generated one if names may be generated."""
        found = self.required_name(verb, name, parent, why)
        return self.generated_name(verb, parent) if found is None else found

    def generated_name(self, verb: str, parent: Step | None) -> str:
        """Return a free name after the nearest named ancestor: `Flights.filter-2`."""
        stem = verb if parent is None else f"{self._anchors[parent]}.{verb}"
        name, number = stem, 1
        while name in self._names:
            number += 1
            name = f"{stem}-{number}"
        return name


def call(function: object, verb: str, what: str, name: str | None = None) -> Any:
    """Return `function`; raise `TopologyError` if it cannot be called."""
    step = f'{verb} "{name}"' if name else verb
    if not callable(function):
        raise TopologyError(f"{step} takes {what}, not {function!r}")
    if is_async(function):
        raise TopologyError(
            f"{step} takes {what}, not an async one: only map_values of a stream takes async "
            "functions"
        )
    if verb.endswith(_WITHOUT_VALUE) and (made := never_run(function)):
        raise TopologyError(f"{step} takes {what}, not {made}: calling it runs nothing")
    return function
