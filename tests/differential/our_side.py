"""Our side: the same topologies by our `StreamsBuilder`, through our `TopologyTestDriver`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from kafka_pipeline import Record, StreamsBuilder, Suppress, serdes, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import Windowed
from kafka_pipeline.testing import TopologyTestDriver
from tests.differential import functions
from tests.differential.outcome import Outcome
from tests.differential.topologies import Input, Step, Topology

_SERDES: Mapping[str, Serde[Any]] = {"string": serdes.string, "long": serdes.int64}


def is_one_task(topology: Topology) -> bool:
    """Whether no topic is in between, over which batches would meet in another order."""
    return len(_Building(topology).build().groups) == 1


def run(topology: Topology, inputs: Sequence[Input], *, in_batches: bool = False) -> Outcome:
    """Return what comes of a run that begins with empty state.

    In batches, consecutive records of a topic are written at once, and are one input.
    """
    outputs: dict[str, list[Any]] = {}
    done = 0
    try:
        with TopologyTestDriver(_Building(topology).build()) as driver:
            try:
                for feed in _feeds(driver, topology, inputs, in_batches):
                    feed()
                    done += 1
            finally:
                for topic, step in topology.sinks.items():
                    sink = driver.create_output_topic(topic, _key_serde(step), _SERDES[step.value])
                    outputs[topic] = [
                        (_plain(record.key), record.value, record.timestamp)
                        for record in sink.read_records()
                    ]
    except Exception as error:
        # Whatever it is, it is part of the outcome: Kafka Streams may fail there, too.
        return Outcome(outputs, f"{type(error).__name__}: {error}", done)
    return Outcome(outputs, None, done)


def _feeds(
    driver: TopologyTestDriver, topology: Topology, inputs: Sequence[Input], in_batches: bool
) -> Iterator[Callable[[], None]]:
    """Yield, for each input, what processes it."""
    topics = {
        topic: driver.create_input_topic(topic, _SERDES[step.key], _SERDES[step.value])
        for topic, step in topology.sources.items()
    }
    for topic, together in groupby(inputs, lambda given: given.get("topic")):
        if topic is None:
            for given in together:
                yield partial(driver.advance_wall_clock_time, given["advance_ms"])
            continue
        records = [Record(given["key"], given["value"], given["ts"]) for given in together]
        for batch in [records] if in_batches else [[record] for record in records]:
            yield partial(topics[topic].pipe_batch, batch)


def _plain(key: Any) -> Any:
    if isinstance(key, Windowed):
        return (key.key, key.window.start, key.window.end)
    return key


def _key_serde(step: Step) -> Serde[Any]:
    inner = _SERDES[step.key]
    if step.window is None:
        return inner
    if step.window["kind"] == "session":
        return serdes.session_windowed(inner)
    return serdes.time_windowed(inner, size_ms=step.window["size_ms"])


class _Building:
    """Calls the methods of the DSL, step by step."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._builder = StreamsBuilder()
        self._built: dict[str, Any] = {}
        self._steps = {step.name: step for step in topology.steps}

    def build(self) -> Any:
        """Return the topology of the engine."""
        for step in self._topology.steps:
            self._built[step.name] = self._add(step)
        return self._builder.build()

    def _add(self, step: Step) -> Any:
        parents = [self._built[name] for name in step.parents]
        method = getattr(self, f"_{step.op}", None)
        return (method or self._of_one)(step, *parents)

    # Sources and sinks

    def _stream(self, step: Step) -> Any:
        return self._builder.stream(step.args["topics"], name=step.name, **_serdes_of(step))

    def _table(self, step: Step) -> Any:
        return self._builder.table(
            step.args["topics"][0],
            name=step.name,
            history_retention_ms=step.args["history_ms"],
            **_serdes_of(step),
        )

    def _global_table(self, step: Step) -> Any:
        return self._builder.global_table(
            step.args["topics"][0], name=step.name, **_serdes_of(step)
        )

    def _to(self, step: Step, stream: Any) -> None:
        stream.to(step.args["topic"], name=step.name, **_serdes_of(step))

    # Without state

    def _of_one(self, step: Step, parent: Any) -> Any:
        """Add a step that takes one function, or none, and has the name of its method."""
        functions_of_step: Sequence[Callable[..., Any]] = ()
        if "f" in step.args:
            functions_of_step = [_CATALOGUE[step.op][step.args["f"]]]
        arguments = {name: _serdes_of(step)[name] for name in _TAKES_SERDES.get(step.op, ())}
        if step.shape != "table" or step.args.get("stored") or step.op == "to_table":
            arguments["name"] = step.name
        return getattr(parent, step.op)(*functions_of_step, **arguments)

    def _peek(self, step: Step, stream: Any) -> Any:
        return stream.peek(lambda key, value: None, name=step.name)

    def _merge(self, step: Step, left: Any, right: Any) -> Any:
        return left.merge(right, name=step.name)

    def _split(self, step: Step, stream: Any) -> Any:
        branches = {
            branch["name"]: functions.PREDICATES[branch["f"]] for branch in step.args["branches"]
        }
        return stream.split(branches, default=step.args["default"], name=step.name)

    def _branch(self, step: Step, branches: Mapping[str, Any]) -> Any:
        return branches[step.args["branch"]]

    def _table_group_by(self, step: Step, table: Any) -> Any:
        mapper = functions.PAIR_MAPPERS[step.args["f"]]
        return table.group_by(mapper, name=step.name, **_serdes_of(step))

    # Aggregates

    def _aggregate(self, step: Step, grouped: Any) -> Any:
        window = step.args.get("window")
        if window is not None:
            emit: EmitTime = "on_close" if step.args["emit"] == "close" else "on_update"
            grouped = grouped.windowed_by(_window(window), emit=emit)
        return _aggregated(step, grouped, *_adders(step))

    def _table_aggregate(self, step: Step, grouped: Any) -> Any:
        combiners = [
            functions.COMBINERS[step.args[name]]
            for name in ("f", "subtractor")
            if name in step.args
        ]
        adders = [_adder(combiner) for combiner in combiners]
        return _aggregated(step, grouped, adders, combiners)

    def _cogroup(self, step: Step, *groups: Any) -> Any:
        adders = [_adder(functions.COMBINERS[name]) for name in step.args["adders"]]
        cogrouped = groups[0].cogroup(adders[0])
        for grouped, adder in zip(groups[1:], adders[1:], strict=True):
            cogrouped = cogrouped.cogroup(grouped, adder)
        window = step.args.get("window")
        if window is not None:
            cogrouped = cogrouped.windowed_by(_window(window))
        return cogrouped.aggregate(
            functions.INITIAL[step.args["initial"]],
            name=step.name,
            value_serde=_SERDES[step.value],
            **(_merger(step) if window is not None and window["kind"] == "session" else {}),
        )

    def _suppress(self, step: Step, table: Any) -> Any:
        max_records = step.args["max_records"]
        if step.args["wait_ms"] is None:
            suppress = Suppress.until_window_closes(max_records=max_records)
        else:
            suppress = Suppress.until_time_limit(
                step.args["wait_ms"], max_records=max_records, when_full=step.args["when_full"]
            )
        return table.suppress(suppress, name=step.name)

    # Joins

    def _stream_join(self, step: Step, left: Any, right: Any) -> Any:
        window = windows.join(
            before_ms=step.args["before_ms"],
            after_ms=step.args["after_ms"],
            grace_ms=step.args["grace_ms"],
        )
        return _join(step, left)(
            right, _joiner(step), window, name=step.name, value_serde=_SERDES[step.value]
        )

    def _table_lookup(self, step: Step, stream: Any, table: Any) -> Any:
        grace = {"grace_ms": step.args["grace_ms"]} if step.args["grace_ms"] is not None else {}
        return _join(step, stream)(
            table, _joiner(step), name=step.name, value_serde=_SERDES[step.value], **grace
        )

    def _global_lookup(self, step: Step, stream: Any, table: Any) -> Any:
        return _join(step, stream)(
            table,
            _joiner(step),
            key=functions.KEY_MAPPERS[step.args["key"]],
            name=step.name,
            value_serde=_SERDES[step.value],
        )

    def _table_join(self, step: Step, left: Any, right: Any) -> Any:
        name = {"name": step.name} if step.args["stored"] else {}
        return _join(step, left)(right, _joiner(step), value_serde=_SERDES[step.value], **name)

    def _foreign_key_join(self, step: Step, left: Any, right: Any) -> Any:
        mapper = functions.KEY_MAPPERS[step.args["foreign_key"]]
        return _join(step, left)(
            right,
            _joiner(step),
            foreign_key=lambda value: mapper(None, value),
            name=step.name,
            value_serde=_SERDES[step.value],
        )


_CATALOGUE: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "filter": functions.PREDICATES,
    "filter_not": functions.PREDICATES,
    "map": functions.PAIR_MAPPERS,
    "map_values": functions.VALUE_MAPPERS,
    "flat_map": functions.PAIR_SPLITTERS,
    "flat_map_values": functions.VALUE_SPLITTERS,
    "select_key": functions.KEY_MAPPERS,
    "group_by": functions.KEY_MAPPERS,
}
_BOTH = ("key_serde", "value_serde")
_TAKES_SERDES: Mapping[str, Sequence[str]] = {
    "map": _BOTH,
    "map_values": ("value_serde",),
    "flat_map": _BOTH,
    "flat_map_values": ("value_serde",),
    "select_key": ("key_serde",),
    "repartition": _BOTH,
    "to_table": _BOTH,
    "group_by_key": _BOTH,
    "group_by": _BOTH,
}


def _serdes_of(step: Step) -> dict[str, Any]:
    return {"key_serde": _key_serde(step), "value_serde": _SERDES[step.value]}


def _window(window: Mapping[str, Any]) -> Any:
    grace_ms = window["grace_ms"]
    if window["kind"] == "session":
        return windows.session(window["gap_ms"], grace_ms=grace_ms)
    if window["kind"] == "sliding":
        return windows.sliding(window["difference_ms"], grace_ms=grace_ms)
    size_ms, advance_ms = window["size_ms"], window["advance_ms"]
    if size_ms == advance_ms:
        return windows.tumbling(size_ms, grace_ms=grace_ms)
    return windows.hopping(size_ms, advance_ms=advance_ms, grace_ms=grace_ms)


def _adders(step: Step) -> tuple[list[Any], list[Any]]:
    combiners = [functions.COMBINERS[step.args["f"]]] if "f" in step.args else []
    return [_adder(combiner) for combiner in combiners], combiners


def _adder(combiner: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda key, value, total: combiner(total, value)


def _merger(step: Step) -> dict[str, Any]:
    combiner = functions.COMBINERS[step.args["merger"]]
    return {"merger": lambda key, left, right: combiner(left, right)}


def _aggregated(step: Step, grouped: Any, adders: list[Any], reducers: list[Any]) -> Any:
    """Aggregate with an adder of key, value and aggregate, or reduce with a reducer of two."""
    if step.args["how"] == "count":
        return grouped.count(name=step.name)
    if step.args["how"] == "reduce":
        return grouped.reduce(*reducers, name=step.name)
    written: dict[str, Any] = {"name": step.name, "value_serde": _SERDES[step.value]}
    if "merger" in step.args:
        written |= _merger(step)
    return grouped.aggregate(functions.INITIAL[step.args["initial"]], *adders, **written)


def _join(step: Step, left: Any) -> Callable[..., Any]:
    kind = step.args["kind"]
    found: Callable[..., Any] = getattr(left, "join" if kind == "inner" else f"{kind}_join")
    return found


def _joiner(step: Step) -> Callable[[Any, Any], Any]:
    return functions.COMBINERS[step.args["f"]]
