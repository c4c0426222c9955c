"""Topologies of the DSL as data, which both sides build: ours and Kafka Streams.

A topology is a list of steps, parents first. `functions.py` has the functions that they name. All
times are in milliseconds. The steps and their arguments:

| step | makes | arguments |
| --- | --- | --- |
| stream, table, global_table | a source | topics; history_ms of a versioned table, or null |
| filter, filter_not, map_values | a stream, or a table | f; stored, of a table |
| map, flat_map, flat_map_values, select_key, peek | a stream | f |
| merge, repartition, to_stream, to_table | a stream or table | none |
| split, branch | streams | branches: a list of name and f, default; branch: which of them |
| group_by_key, group_by | a group | f |
| table_group_by | a table_group | f |
| aggregate | a table | how: count, reduce, aggregate; f, initial, merger, window, emit |
| cogroup | a table | adders, initial, merger, window |
| table_aggregate | a table | how, f, subtractor, initial |
| stream_join | a stream | kind: inner, left, outer; f, before_ms, after_ms, grace_ms |
| table_lookup | a stream | kind, f, grace_ms or null |
| global_lookup | a stream | kind, f, key |
| table_join | a table | kind, f, stored |
| foreign_key_join | a table | kind, f, foreign_key |
| suppress | a table | wait_ms, or null until windows close; max_records or null; when_full |
| to | nothing | topic |

A window is `{"kind": "time", "size_ms", "advance_ms", "grace_ms"}`, `{"kind": "sliding",
"difference_ms", "grace_ms"}` or `{"kind": "session", "gap_ms", "grace_ms"}`. Tables that are not
`stored` compute their values when they are looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

Input = Mapping[str, Any]
"""A record, `{"topic", "key", "value", "ts"}`, or `{"advance_ms"}` for the wall clock."""

SOURCES = ("stream", "table", "global_table")


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `args` depends on `op`."""

    name: str
    op: str
    parents: tuple[str, ...]
    args: Mapping[str, Any]
    shape: str
    """What the step makes: stream, table, global, group, table_group, split or sink."""
    key: str
    """The type of the keys, or of what is in windowed keys: string or long."""
    value: str
    """The type of the values: string or long."""
    window: Mapping[str, Any] | None = None
    """The kind of windowed keys: time with size_ms, or session. `None` for plain keys."""

    def to_json(self) -> dict[str, Any]:
        """Return the step as KafkaStreamsRunner.java reads it."""
        found = asdict(self)
        found["from"] = list(found.pop("parents"))
        return found

    def __str__(self) -> str:
        given = [*self.parents]
        given += [f"{name}={value}" for name, value in self.args.items() if value is not None]
        types = (
            f"{self.key}, {self.value}"
            if self.window is None
            else f"{self.key} in windows, {self.value}"
        )
        return f"{self.name} = {self.op}({', '.join(given)})  # {self.shape} of {types}"

    @property
    def type(self) -> tuple[Any, ...]:
        """What must be equal for a step to take another one's place."""
        return (self.shape, self.key, self.value, self.window)


@dataclass(frozen=True, slots=True)
class Topology:
    """Steps in the order of the calls, and whether Kafka Streams optimises them."""

    steps: tuple[Step, ...]
    optimized: bool = False

    @property
    def sinks(self) -> Mapping[str, Step]:
        """The topics that are written, and the steps whose records they get."""
        by_name = {step.name: step for step in self.steps}
        return {
            step.args["topic"]: by_name[step.parents[0]] for step in self.steps if step.op == "to"
        }

    @property
    def sources(self) -> Mapping[str, Step]:
        """The topics that are read, and the steps that read them."""
        return {
            topic: step
            for step in self.steps
            if step.op in SOURCES
            for topic in step.args["topics"]
        }

    @property
    def needs_disk(self) -> bool:
        """Whether Kafka Streams' stores in memory do other things than its default, RocksDB.

        In memory, sessions that close at once are sorted by key, not by start; and a record without
        a value advances the time of a join's store, so that others expire.
        """
        return any(
            step.op == "stream_join"
            or (
                step.op == "aggregate"
                and step.window == {"kind": "session"}
                and step.args["emit"] == "close"
            )
            for step in self.steps
        )

    def __str__(self) -> str:
        lines = [str(step) for step in self.steps]
        return "\n".join([*lines, *(["optimized by Kafka Streams"] if self.optimized else [])])

    def smaller(self) -> Iterator[Topology]:
        """Yield topologies without a step and what follows, bypassing one, or written earlier."""
        for step in reversed(self.steps):
            yield self._without({step.name})
            for parent in self.steps:
                if parent.name in step.parents and parent.type == step.type:
                    yield self._bypassing(step, parent.name)

        for step in self.steps:
            if step.op in ("to", "to_stream"):
                yield from self._written_earlier(step)

    def _written_earlier(self, step: Step) -> Iterator[Topology]:
        """Let a sink, or the stream of a table, come from what leads to its parent."""
        used = {name for child in self.steps if child.op != "to" for name in child.parents}
        if step.name in used:
            return
        shape = "table" if step.op == "to_stream" else "stream"
        for parent in self._before(step.parents[0]):
            if parent.shape == shape:
                earlier = replace(
                    step,
                    parents=(parent.name,),
                    key=parent.key,
                    value=parent.value,
                    window=parent.window,
                )
                yield self._with([earlier if each is step else each for each in self.steps])

    def _before(self, name: str) -> list[Step]:
        """Return the steps that lead to a step, without itself."""
        needed, found = {name}, []
        for step in reversed(self.steps):
            if step.name in needed:
                needed |= {*step.parents}
                found.append(step)
        return found[1:]

    def _without(self, names: set[str]) -> Topology:
        for step in self.steps:
            if names & {*step.parents}:
                names = names | {step.name}
        return self._with([step for step in self.steps if step.name not in names])

    def _bypassing(self, bypassed: Step, parent: str) -> Topology:
        def redirected(step: Step) -> Step:
            parents = tuple(parent if name == bypassed.name else name for name in step.parents)
            return replace(step, parents=parents)

        return self._with([redirected(step) for step in self.steps if step is not bypassed])

    def _with(self, steps: Sequence[Step]) -> Topology:
        return Topology(tuple(steps), self.optimized).pruned()

    def pruned(self) -> Topology:
        """Return the topology without the steps that lead to no sink."""
        used: set[str] = set()
        kept: list[Step] = []
        for step in reversed(self.steps):
            if step.shape == "sink" or step.name in used:
                used |= {*step.parents}
                kept.append(step)
        return replace(self, steps=tuple(reversed(kept)))
