"""The steps so far of a topology that is being drawn, and which of them may be combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.differential.topologies import Step, Topology


@dataclass(frozen=True, slots=True)
class Node:
    """A step, and what its records have been through."""

    step: Step
    origins: frozenset[str]
    """The topics that its records come from."""
    tables: frozenset[str]
    """The tables that its records come from, itself included."""
    has_hop: bool
    """Whether an internal topic is on the way, or comes before the next step by key."""
    is_multiple: bool
    """Whether one input may lead to several records."""
    is_versioned: bool = False
    is_close_known: bool = False
    """Whether it has windows that `suppress` forwards when they close."""
    sends_wrong_olds: bool = False
    """Whether Kafka Streams sends wrong old values with the changes of a table.

    With the first result of a key, it sends the initial aggregate though there was no value; with
    an update of a session that keeps its bounds, it sends no old value though there was one; with
    what `suppress` lets go, it sends an update that was held back. So a filter sends tombstones for
    what never passed, and groups subtract too much or too little. A step with a store knows the old
    value itself, so one must come first.
    """

    @property
    def has_plain_keys(self) -> bool:
        return self.step.window is None


def may_meet(left: Node, right: Node) -> bool:
    """Return whether the order in which records of two nodes arrive is defined.

    After an input, Kafka Streams reads its internal topics in an order that hangs on the
    layout of a heap. So a step must not see one input on two ways, one of them through an
    internal topic.
    """
    return not (left.origins & right.origins) or not (left.has_hop or right.has_hop)


class Drawing:
    """Draws parents and parameters, and keeps the steps."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes: list[Node] = []
        self.scale = random.choice((1, 1, 1, 20_000))
        """What all times are multiplied with. 20,000 spreads windows over many segments of
        Kafka Streams' stores, which have at least a minute each."""
        self._topics = 0

    def add(
        self,
        op: str,
        parents: Sequence[Node],
        args: Mapping[str, Any],
        shape: str,
        *,
        key: str = "",
        value: str = "",
        window: Mapping[str, Any] | None = None,
        keeps_window: bool = True,
        hop: bool = False,
        multiple: bool = False,
        versioned: bool = False,
        close_known: bool = False,
        sends_wrong_olds: bool = False,
    ) -> Node:
        """Append a step; types and windowed keys are those of its first parent by default."""
        first = parents[0].step if parents else None
        if first is not None and keeps_window and window is None:
            window = first.window
        step = Step(
            name=f"N{len(self.nodes)}-{op}",
            op=op,
            parents=tuple(parent.step.name for parent in parents),
            args=args,
            shape=shape,
            key=key or (first.key if first else "string"),
            value=value or (first.value if first else "string"),
            window=window,
        )
        origins = frozenset[str]().union(*(parent.origins for parent in parents))
        if not parents:
            origins = frozenset(args["topics"])
        tables = frozenset[str]().union(*(parent.tables for parent in parents))
        node = Node(
            step,
            origins,
            tables | {step.name} if shape == "table" else tables,
            has_hop=hop or any(parent.has_hop for parent in parents),
            is_multiple=multiple or any(parent.is_multiple for parent in parents),
            is_versioned=versioned,
            is_close_known=close_known,
            sends_wrong_olds=sends_wrong_olds,
        )
        self.nodes.append(node)
        return node

    def one_of(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return self.random.choice(choices)

    def happens(self, probability: float) -> bool:
        """Return whether something of this probability happens."""
        return self.random.random() < probability

    def ms(self, *choices: int) -> int:
        """Return a time, in the topology's scale."""
        return int(self.random.choice(choices)) * self.scale

    def topic(self, prefix: str) -> str:
        """Return the name of a new topic."""
        self._topics += 1
        return f"{prefix}{self._topics}"

    def pick(self, shape: str, fits: Callable[[Node], bool]) -> Node | None:
        """Return a node of a shape that fits, preferring late ones; None if there is none."""
        found = [node for node in self.nodes if node.step.shape == shape and fits(node)]
        if not found:
            return None
        return self.random.choices(found, range(1, len(found) + 1))[0]

    def source(self, op: str, shape: str, key: str = "", history_ms: int | None = None) -> Node:
        """Add a source of new topics."""
        count = 2 if op == "stream" and self.happens(0.1) else 1
        topics = [self.topic("in") for _ in range(count)]
        return self.add(
            op,
            (),
            {"topics": topics, "history_ms": history_ms},
            shape,
            key=key or self.random.choices(("string", "long"), (4, 1))[0],
            value=self.one_of("string", "long"),
            versioned=history_ms is not None,
        )

    def stream(
        self, fits: Callable[[Node], bool] = lambda node: True, *, key: str = "", new: float = 0.2
    ) -> Node:
        """Return a stream that fits, a new one if there is none, or with a probability."""
        found = self.pick("stream", fits)
        if found is not None and not self.happens(new):
            return found
        return self.source("stream", "stream", key)

    def table(
        self, fits: Callable[[Node], bool] = lambda node: True, *, key: str = "", new: float = 0.2
    ) -> Node:
        """Return a table as `stream` returns a stream."""
        found = self.pick("table", fits)
        if found is not None and not self.happens(new):
            return found
        history_ms = self.ms(10, 50) if self.happens(0.25) else None
        return self.source("table", "table", key, history_ms)

    def with_old_values(self, table: Node) -> Node:
        """Return a table whose old values can be relied on: this one, or one with a store."""
        if not table.sends_wrong_olds:
            return table
        return self.add(
            "map_values", [table], {"f": "text", "stored": True}, "table", value="string"
        )

    def topology(self) -> Topology:
        """Write what nothing reads to topics, and some of the rest; return the topology."""
        used = {name for node in self.nodes for name in node.step.parents}
        for node in list(self.nodes):
            is_leaf = node.step.name not in used
            if node.step.shape in ("stream", "table") and (is_leaf or self.happens(0.1)):
                self._write(node)
        optimized = self.happens(0.3) and not any(map(self._is_self_join, self.nodes))
        return Topology(tuple(node.step for node in self.nodes), optimized).pruned()

    def _is_self_join(self, node: Node) -> bool:
        """Return whether a step joins a stream with itself.

        Optimised, Kafka Streams 4.3 loses results there: those of records without a key in left and
        outer joins, and that of a record with itself just before the record is late.
        """
        sides = [parent for parent in self.nodes if parent.step.name in node.step.parents]
        return node.step.op == "stream_join" and (
            len(sides) == 1 or bool(sides[0].origins & sides[1].origins)
        )

    def _write(self, node: Node) -> None:
        if node.step.shape == "table":
            node = self.add("to_stream", [node], {}, "stream")
        self.add("to", [node], {"topic": self.topic("out")}, "sink")
