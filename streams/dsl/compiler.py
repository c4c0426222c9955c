"""Turns the logical graph into the nodes of a topology."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.common_origins import add_begin
from kafka_pipeline.streams.dsl.graph import ANY_TOPIC, Graph, Step
from kafka_pipeline.streams.dsl.newest_changes import NewestChanges
from kafka_pipeline.streams.engine.builder import TopologyBuilder
from kafka_pipeline.streams.engine.nodes import Source, Supplier
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.stores import StoreBuilder


class Compiler:
    """Compiles one graph; operations add their nodes to `builder`."""

    def __init__(self, graph: Graph, stores: Sequence[StoreBuilder[Any, Any]]) -> None:
        """Take the steps of `graph`, and stores that steps use by their names."""
        self.builder = TopologyBuilder()
        self._steps = list(graph.steps)
        self._cached = graph.tables if graph.caching else set[Step]()
        self._children: dict[Step, list[Step]] = {step: [] for step in self._steps}
        for step in self._steps:
            for parent in step.parents:
                self._children[parent].append(step)
        self._outputs: dict[Step, str] = {}
        self._stores: dict[str, StoreBuilder[Any, Any]] = {}
        self._origins: defaultdict[Step, list[Step]] = defaultdict(list)
        """For each table, the joins that its changes may reach from both sides."""
        self._sends_old: set[Step] = set()
        for step in self._steps:
            for origin in step.operation.common_origins:
                self._origins[origin].append(step)
        for step in reversed(self._steps):
            sends_old = step in self._sends_old
            for number, parent in enumerate(step.parents):
                if step.operation.needs_old_values_of(number, sends_old):
                    self._sends_old.add(parent)
        for store in stores:
            self.add_store(store)

    def compile(self) -> Topology:
        """Return the topology. Raises `TopologyError`."""
        if not self._steps:
            raise TopologyError(
                "the builder has no steps: begin with stream, table or global_table"
            )
        for step in self._steps:
            step.operation.compile(step, self)
        if not self._outputs and not self._stores:
            names = ", ".join(step.name for step in self._steps)
            raise TopologyError(
                f"nothing is done with what {names} reads: add a step, such as to(…) with the "
                "topic of the results"
            )
        user = any(step.operation.runs_user_processor for step in self._steps)
        topology = self.builder.build()
        in_order = {root.name for root in self._steps if self._is_order_seen(root)}
        meeting = self._meeting_sources() - in_order
        looked_up = {root.name for root in self._steps if self._is_looked_up(root)}
        placed = {step.name for step in self._steps if not step.operation.by_key}
        nodes = tuple(
            replace(
                node,
                one_by_one=node.name in in_order,
                by_key=node.name not in placed,
                meets_at_points=node.name in meeting,
                looked_up=node.name in looked_up,
            )
            if isinstance(node, Source)
            else node
            for node in topology.nodes
        )
        return replace(topology, nodes=nodes, meets_in_stores=not user)

    # For operations; `Compiling` says what each method does

    def children(self, step: Step) -> list[Step]:
        return self._children[step]

    def runs(
        self,
        step: Step,
        supplier: Supplier,
        parents: Sequence[str] | None = None,
        *,
        holds_ms: int = 0,
        looks_up: bool = False,
    ) -> None:
        self.builder.add_processor(
            step.name,
            supplier,
            self.parents(step) if parents is None else parents,
            stores=step.operation.stores(),
            holds_ms=holds_ms,
            looks_up=looks_up,
        )
        self.produces(step, step.name)

    def produces(self, step: Step, node: str) -> None:
        if step in self._cached and step.operation.stores():
            newest = f"{step.name}-cache"
            write_key, sends_old = step.key_serde.serialize, self.sends_old_values(step)
            make = partial(NewestChanges, write_key, sends_old)
            self.builder.add_processor(newest, make, [node])
            node = newest
        self._outputs[step] = node
        for join in self._origins[step]:
            # Children get a change in the order in which they were added: these are the first.
            add_begin(self, join, step)

    def parents(self, step: Step) -> list[str]:
        return [self._outputs[parent] for parent in step.parents]

    def output(self, step: Step) -> str:
        return self._outputs[step]

    def sends_old_values(self, step: Step) -> bool:
        return step in self._sends_old

    def users(self, store: str) -> list[Step]:
        return [step for step in self._steps if store in step.operation.stores()]

    def add_store(self, store: StoreBuilder[Any, Any], more_ms: int = 0) -> None:
        if self._stores.get(store.name) is not store:
            # A second definition of the same name is an error, which the builder reports.
            self._stores[store.name] = store
            self.builder.add_state_store(store.kept_longer(more_ms) if more_ms else store)

    # Which sources pass records on one by one

    def _is_order_seen(self, root: Step) -> bool:
        """Return whether the order of records across the branches after a source matters.

        A batch goes through one branch as a whole before it goes through the next one. Where two
        branches of a source meet again, in a step, a store or a topic, records would come in
        another order than one by one. A user's processor may look at each record's place in its
        topic.
        """
        if root.parents and not root.operation.begins_group:
            return False
        reached = self._in_group(root)
        paths: Counter[Step] = Counter({root: 1})
        stores: Counter[str] = Counter()
        topics: Counter[str] = Counter()
        for step in reached:
            if step is not root:
                paths[step] = sum(paths[parent] for parent in step.parents)
            stores.update(self._stores_reached(step, reached))
            if step.operation.writes_topic is not None:
                topics[step.operation.writes_topic] += 1
        return (
            any(step.operation.runs_user_processor for step in reached)
            or max(paths.values()) > 1
            or (topics[ANY_TOPIC] > 0 and topics.total() > 1)
            or max((*stores.values(), *topics.values()), default=0) > 1
        )

    def _is_looked_up(self, root: Step) -> bool:
        """Return whether what a root reads ends in tables, from which others look it up.

        A table with a history has the time of its rows: they must neither be too old for it because
        the others are ahead, nor missing when a record has waited for them.
        """
        if root.parents and not root.operation.begins_group:
            return False
        return not any(
            step.operation.needs_time or step.operation.keeps_history
            for step in self._in_group(root)
            if step is not root
        )

    @staticmethod
    def _stores_reached(step: Step, reached: Collection[Step]) -> set[str]:
        """Return the stores that a step uses for the records of those parents that are reached."""
        operation = step.operation
        numbers = [number for number, each in enumerate(step.parents) if each in reached]
        if not numbers:
            return set(operation.stores())
        return {name for number in numbers for name in operation.stores_reached_from(number)}

    def _meeting_sources(self) -> set[str]:
        """Return the sources whose order among others matters only where a step restores it.

        A flow is what comes from one source or one such step. If flows meet elsewhere, in a step, a
        store or a topic, the order matters there, too.
        """
        flow_of: dict[Step, Step | None] = {}
        users: defaultdict[str, set[Step | None]] = defaultdict(set)
        topics: defaultdict[str, set[Step | None]] = defaultdict(set)
        in_place: set[Step] = set()
        """The steps whose batches have places."""
        for step in self._steps:
            operation = step.operation
            flows = {flow_of[parent] for parent in step.parents}
            has_places = in_place.issuperset(step.parents)
            if not step.parents or operation.begins_group:
                flow_of[step] = step
            elif operation.restores_order:
                flow_of[step] = step if has_places and None not in flows else None
            else:
                flow_of[step] = flows.pop() if len(flows) == 1 else None
                has_places = has_places and operation.keeps_places
            if has_places or flow_of[step] is step:
                in_place.add(step)
            for store in operation.stores():
                users[store].add(flow_of[step])
            if operation.writes_topic is not None:
                topics[operation.writes_topic].add(flow_of[step])
        if ANY_TOPIC in topics:
            topics[ANY_TOPIC].update(*topics.values())
        shared = [each for each in (*users.values(), *topics.values()) if len(each) > 1]
        unfit = {None}.union(*shared)
        roots = (each for each in self._steps if flow_of[each] is each)
        return {
            root.name
            for root in roots
            if all(flow_of[each] not in unfit for each in self._in_group(root))
        }

    def _in_group(self, root: Step) -> list[Step]:
        """Return the steps from `root` to the next topics, parents first."""
        reached = {root}
        waiting = [root]
        while waiting:
            for child in self._children[waiting.pop()]:
                if child not in reached:
                    reached.add(child)
                    if not child.operation.begins_group:
                        waiting.append(child)
        return [step for step in self._steps if step in reached]
