"""The nodes of a group with their processors and stores, set up for one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.code.escapes import as_exception, nothing_escapes
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.streams.engine.context import RunningContext, TaskView
from kafka_pipeline.streams.engine.either_way import MeetingPoint
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.engine.exact_sink import ExactSink
from kafka_pipeline.streams.engine.mixed import LookupTable, MixedProcessor
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.nodes import Node, ProcessorNode, Sink, Source
from kafka_pipeline.streams.engine.outputs import Output
from kafka_pipeline.streams.engine.running import RunningProcessor, RunningSink, RunningSource
from kafka_pipeline.streams.engine.running_async import AsyncContext, RunningAsync
from kafka_pipeline.streams.engine.running_node import RunningNode, init
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.errors import StreamsError, SupplierError
from kafka_pipeline.streams.event_time.step_time import FollowsTime
from kafka_pipeline.streams.processor import AsyncProcessor, BatchProcessor, Processor
from kafka_pipeline.streams.stores.expiring import Expiring


class RunningGroup:
    """Makes the nodes of a group and sets up the processors, children first."""

    def __init__(
        self, group: NodeGroup, task: TaskView, outputs: list[Output], environment: TaskEnvironment
    ) -> None:
        """Sinks append to `outputs`. Raises whatever user code raises, with all nodes closed."""
        self._group = group
        self._task = task
        self._outputs = outputs
        self._environment = environment
        self._loop = environment.loop or EventLoop()
        self.stores = {s.name: s.build(environment.stores[s.name]) for s in group.stores}
        self.counting_stores = [s for s in self.stores.values() if isinstance(s, Expiring)]
        """The stores that count late entries."""
        self._global_stores = {
            each.store.name: each.store.build(environment.global_stores[each.store.name])
            for each in group.global_stores
        }
        self.held_from = {node.name: group.held_from(node.name) for node in group.nodes}
        """The topics of the records that a node may hold back, by its name."""
        self.asynchronous: list[RunningAsync] = []
        """The nodes whose calls run while the task does other things."""
        self._nodes: dict[str, RunningNode] = {}
        self._sources: dict[str, RunningSource] = {}
        self._patterns: list[tuple[Source, RunningSource]] = []
        self._contexts: list[RunningContext] = []
        try:
            for node in reversed(group.nodes):
                self._make(node)
        except BaseException:
            with suppress(Exception):
                self.close()
            raise

    @property
    def undo_marks(self) -> tuple[list[Callable[[], None]], list[Callable[[], None]]]:
        """What to call before each record, and what undoes everything done to stores since then."""
        stores, counting = self._environment.stores.values(), self.counting_stores
        set_marks = [s.mark for s in stores] + [s.mark for s in counting]
        return set_marks, [s.undo for s in stores] + [s.back_to_mark for s in counting]

    @property
    def changed_store(self) -> str:
        """A store that was written since the last undo mark; "" if none was."""
        stores = self._environment.stores.items()
        return next((name for name, store in stores if not store.is_at_mark), "")

    @property
    def reads_global_stores(self) -> bool:
        """Whether processors look up what follows a whole topic."""
        return bool(self._global_stores)

    @property
    def mixed(self) -> RunningProcessor | None:
        """The processor that takes the records of all sources together, if there is one.

        Others of its kind may get what it forwards.
        """
        found = None
        for node in self._processors:
            if isinstance(node, RunningProcessor) and isinstance(node.processor, MixedProcessor):
                found = node
        return found

    @property
    def lookup_tables(self) -> dict[str, LookupTable]:
        """The processors that keep the records of a source for the mixed one, by topic."""
        return {
            topic: node.processor
            for source in self._group.sources
            for child in self._group.children(source.name)
            if isinstance(node := self._nodes[child.name], RunningProcessor)
            and isinstance(node.processor, LookupTable)
            for topic in source.topics
        }

    @property
    def meeting_points(self) -> list[MeetingPoint]:
        """The processors at which records of sources meet, parents first.

        There are none if the order of records of different sources matters elsewhere.
        """
        if not all(source.meets_at_points for source in self._group.sources):
            return []
        found = [node.processor for node in self._processors]
        return [each for each in reversed(found) if isinstance(each, MeetingPoint)]

    @property
    def exact_sinks(self) -> list[ExactSink]:
        """The processors whose results are committed outside of Kafka."""
        found = (node.processor for node in self._processors)
        return [each for each in found if isinstance(each, ExactSink)]

    @property
    def following_time(self) -> list[tuple[FollowsTime, tuple[str, ...]]]:
        """The processors that do something when event time goes on, parents first.

        Each comes with the topics of the records that it may hold back.
        """
        found = [(node.processor, self.held_from[node.name]) for node in self._processors]
        return [(each, topics) for each, topics in reversed(found) if isinstance(each, FollowsTime)]

    @property
    def only_processor(self) -> str | None:
        """The name of the processor, if there is only one."""
        names = [node.name for node in self._processors]
        return names[0] if len(names) == 1 else None

    def name_of(self, value: object) -> str | None:
        """Return the name under which a processor runs; `None` for all other objects."""
        return next((node.name for node in self._processors if node.processor is value), None)

    def source(self, topic: str) -> RunningSource:
        """Return the source that reads a topic. Raises StreamsError if there is none."""
        source = self._sources.get(topic)
        if source is None:
            for node, running in self._patterns:
                assert node.pattern is not None
                if node.pattern.fullmatch(topic):
                    source = self._sources[topic] = running
                    break
            else:
                raise StreamsError(f"no source reads topic {topic}")
        return source

    def close(self) -> None:
        """Close the processors, parents first. Raises the first error that one of them raised."""
        first: Exception | None = None
        for context in self._contexts:
            context.end()
        for node in reversed(self._nodes.values()):
            try:
                node.close()
            except BaseException as raised:
                error = as_exception(raised)
                first = error if first is None else first
        self._nodes.clear()
        if self._environment.loop is None:
            self._loop.close()
        if first is not None:
            raise first

    @property
    def _processors(self) -> Iterator[RunningProcessor | RunningAsync]:
        return (
            node
            for node in self._nodes.values()
            if isinstance(node, RunningProcessor | RunningAsync)
        )

    def _make(self, node: Node) -> None:
        children = {n.name: self._nodes[n.name] for n in self._group.children(node.name)}
        match node:
            case Sink():
                environment = self._environment
                self._nodes[node.name] = RunningSink(
                    node,
                    self._outputs,
                    environment.output_topics,
                    environment.number,
                    self._task.task_time,
                    environment.clocked_topics,
                    environment.clock_ms,
                )
            case ProcessorNode():
                self._nodes[node.name] = self._make_processor(node, children)
            case Source():
                source = RunningSource(node, list(children.values()), self._task.clock_ms)
                self._sources.update(dict.fromkeys(node.topics, source))
                if node.pattern is not None:
                    self._patterns.append((node, source))

    def _make_processor(
        self, node: ProcessorNode, children: dict[str, RunningNode]
    ) -> RunningProcessor | RunningAsync:
        processor = self._supplied(node)
        for child in children.values():
            if isinstance(child, RunningAsync):
                raise StreamsError(
                    f'processor "{node.name}" feeds an AsyncProcessor, which only sources can do: '
                    "put a topic between them"
                )
        other = self.name_of(processor)
        if other is not None:
            raise StreamsError(
                f'the processors "{node.name}" and "{other}" are one object, a '
                f"{type(processor).__name__}: a supplier must return a new one each time"
            )
        if isinstance(processor, AsyncProcessor):
            return self._make_async(node, processor, list(children.values()))
        running = RunningProcessor(node.name, processor, self._task.task_time)
        stores = {**self._global_stores, **{name: self.stores[name] for name in node.stores}}
        holds = self._group.hold_ms(node.name), self._group.store_hold_ms(node.name)
        context = RunningContext(self._task, node.name, children, stores, *holds)
        self._contexts.append(context)
        running.context = context
        with nothing_escapes():
            init(running.processor, context)
        return running

    def _make_async(
        self, node: ProcessorNode, processor: AsyncProcessor, children: Sequence[RunningNode]
    ) -> RunningAsync:
        if node.stores:
            raise StreamsError(
                f'the AsyncProcessor "{node.name}" cannot have stores: its calls go on side by '
                "side. Put a Processor with the stores behind it"
            )
        wake = self._environment.wake
        limit = self._task.time_limit
        mark = self._environment.new_mark()
        running = RunningAsync(node.name, processor, self._loop, wake, children, limit, mark)
        self.asynchronous.append(running)
        with nothing_escapes():
            running.init(AsyncContext(self._task.application_id, self._task.task_id, running.name))
        return running

    @staticmethod
    def _supplied(node: ProcessorNode) -> Processor | BatchProcessor | AsyncProcessor:
        try:
            return node.supplier()
        except (EngineError, PipelineError, StreamsError):
            raise
        except BaseException as raised:
            error = as_exception(raised)
            raise SupplierError(
                f'the supplier of processor "{node.name}" failed: '
                f"{described(error, with_values=True)}"
            ) from error
