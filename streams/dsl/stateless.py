"""Steps of a stream without state, and the chains of them that run as one processor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, repeat
from typing import Any

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.engine.either_way import EitherWay, MakeColumn, ReadsLazily
from kafka_pipeline.streams.engine.left_undone import refuse_lost
from kafka_pipeline.streams.engine.nodes import NamedPart
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, LazyColumn, Record, items_of

Receiver = Callable[[Record], None]


Fields = Collection[tuple[str, ...]]
"""Fields of a value, each as the path of names that leads to it."""


class Part(NamedPart):
    """One step of a chain as it runs: record by record with `receive`, or by columns."""

    reads: Fields | None = None
    """The fields of the values that the part looks at; `None` if it may look at all of a value."""

    replaces_values = False
    """Whether the parts that follow get other values."""

    drops_by_fields = False
    """Whether the part drops records whose fields say so."""

    def __init__(self, name: str, function: Any) -> None:
        self.name = name
        self.function = function
        self.forward: Receiver = _nowhere
        """Takes the records of this part; set when the chain is put together."""

    def receive(self, record: Record) -> None:
        """Pass on what the function makes of a record."""
        raise NotImplementedError

    def columns(self, batch: Batch) -> Batch:
        """Return what the function makes of a batch."""
        raise NotImplementedError


def _nowhere(record: Record) -> None:
    pass


class Chain(ReadsLazily):
    """Runs the parts of a chain: each over the whole batch, or all of them for one record."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self._fields = _fields_read_first(parts)
        self.process_record = parts[0].receive  # type: ignore[method-assign]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        receivers = [*(part.receive for part in self.parts[1:]), context.forward]
        for part, receive in zip(self.parts, receivers, strict=True):
            part.forward = receive

    def lazy_reader(self, deserialize: Callable[[Any], Any]) -> MakeColumn | None:
        if not self._fields or deserialize is not serdes.json.deserialize:
            return None
        # Arrow takes a while to load and some memory, so only tasks with expressions load it.
        from kafka_pipeline.streams.dsl.json_columns import JsonReader

        return JsonReader(deserialize).column

    def process(self, batch: Batch) -> None:
        if self._fields and isinstance(batch.values, LazyColumn):
            batch.values.expect(self._fields)
        for part in self.parts:
            batch = part.columns(batch)
            if not len(batch):
                return
        self.context.forward(batch)

    def process_record(self, record: Record) -> None:
        self.parts[0].receive(record)


def _fields_read_first(parts: Iterable[Part]) -> Fields:
    """Return the fields that are read before anything looks at all of a value.

    There are none if all values are looked at in the end: reading fields first would only cost.
    """
    fields: set[tuple[str, ...]] = set()
    saves = False
    for part in parts:
        if part.reads is None:
            break
        fields.update(part.reads)
        saves = saves or part.drops_by_fields or part.replaces_values
        if part.replaces_values:
            break
    return fields if saves else ()


NULL_KEY = "null key"
"""The reason under which records without a key are counted as dropped."""


class PassPart(Part):
    """Passes everything on: where streams merge, and at the beginning of a branch."""

    reads = ()

    def receive(self, record: Record) -> None:
        self.forward(record)

    def columns(self, batch: Batch) -> Batch:
        return batch


class FilterPart(Part):
    """Keeps records for which the function of key and value is true."""

    def receive(self, record: Record) -> None:
        if self.function(record.key, record.value):
            self.forward(record)

    def columns(self, batch: Batch) -> Batch:
        return selected(batch, results_of(self.function, batch))


class KeyedPart(Part):
    """Keeps records that have a key."""

    reads = ()

    def receive(self, record: Record) -> None:
        if record.key is not None:
            self.forward(record)

    def columns(self, batch: Batch) -> Batch:
        return selected(batch, [key is not None for key in items_of(batch.keys)])


class FilterNotPart(Part):
    """Keeps records for which the function of key and value is false."""

    def receive(self, record: Record) -> None:
        if not self.function(record.key, record.value):
            self.forward(record)

    def columns(self, batch: Batch) -> Batch:
        return selected(batch, [not kept for kept in results_of(self.function, batch)])


class MapPart(Part):
    """Replaces key and value by the pair that the function returns."""

    def receive(self, record: Record) -> None:
        pair = self.function(record.key, record.value)
        key, value = self.checked(pair)
        self.forward(Record(key, value, record.timestamp, record.headers))

    def columns(self, batch: Batch) -> Batch:
        pairs = [self.checked(pair) for pair in results_of(self.function, batch)]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        return batch.with_columns(keys, values)

    def checked(self, pair: Any) -> tuple[Any, Any]:
        """Return a pair of a key and a value; anything else raises `StreamsError`."""
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise StreamsError(
                f'the function of step "{self.name}" returned a {type(pair).__name__}: it must '
                "return a pair (key, value)"
            )
        return pair


class MapValuesPart(Part):
    """Replaces the value by what the function of it returns."""

    def receive(self, record: Record) -> None:
        value = self.function(record.value)
        self.forward(Record(record.key, value, record.timestamp, record.headers))

    def columns(self, batch: Batch) -> Batch:
        return batch.with_values([self.function(value) for value in items_of(batch.values)])


class SelectKeyPart(Part):
    """Replaces the key by what the function of key and value returns."""

    def receive(self, record: Record) -> None:
        key = self.function(record.key, record.value)
        self.forward(Record(key, record.value, record.timestamp, record.headers))

    def columns(self, batch: Batch) -> Batch:
        return batch.with_columns(results_of(self.function, batch), batch.values)


class FlatMapPart(MapPart):
    """Replaces a record by any number of records, as pairs of key and value."""

    def receive(self, record: Record) -> None:
        pairs = several(self.name, self.function(record.key, record.value))
        for key, value in map(self.checked, pairs):
            self.forward(Record(key, value, record.timestamp, record.headers))

    def columns(self, batch: Batch) -> Batch:
        records = zip(*_items(batch), strict=True)
        found = [several(self.name, self.function(key, value)) for key, value in records]
        pairs = [self.checked(pair) for each in found for pair in each]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        return repeated(batch, list(map(len, found)), keys, values)


class FlatMapValuesPart(Part):
    """Replaces a record by any number of records with the same key."""

    def receive(self, record: Record) -> None:
        for value in several(self.name, self.function(record.value)):
            self.forward(Record(record.key, value, record.timestamp, record.headers))

    def columns(self, batch: Batch) -> Batch:
        found = [several(self.name, self.function(value)) for value in items_of(batch.values)]
        counts = list(map(len, found))
        keys = times_each(items_of(batch.keys), counts)
        return repeated(batch, counts, keys, [value for each in found for value in each])


class PeekPart(Part):
    """Calls the function for each record, and passes the records on."""

    def receive(self, record: Record) -> None:
        self.call(record.key, record.value)
        self.forward(record)

    def columns(self, batch: Batch) -> Batch:
        for key, value in zip(*_items(batch), strict=True):
            self.call(key, value)
        return batch

    def call(self, key: Any, value: Any) -> None:
        """Call the function."""
        if (returned := self.function(key, value)) is not None:
            refuse_lost(self.function, returned)


class ForEachPart(PeekPart):
    """Calls the function for each record, and passes nothing on."""

    def receive(self, record: Record) -> None:
        self.call(record.key, record.value)

    def columns(self, batch: Batch) -> Batch:
        return super().columns(batch).head(0)


def selected(batch: Batch, kept: Sequence[Any]) -> Batch:
    """Return the records of a batch for which `kept` is true, in order."""
    if all(kept):
        return batch
    return Batch(
        list(compress(items_of(batch.keys), kept)),
        _selected_values(batch.values, kept),
        list(compress(items_of(batch.timestamps), kept)),
        None if batch.headers is None else list(compress(batch.headers, kept)),
        None if batch.offsets is None else list(compress(batch.offsets, kept)),
        None if batch.clocks is None else list(compress(batch.clocks, kept)),
    )


def with_keys(batch: Batch, context: ProcessorContext) -> Batch:
    """Return the records that have a key; drop and count the others."""
    keys = items_of(batch.keys)
    if None not in keys:
        return batch
    for _ in range(keys.count(None)):
        context.drop(NULL_KEY)
    return selected(batch, [key is not None for key in keys])


def _selected_values(values: Sequence[Any], kept: Sequence[Any]) -> Sequence[Any]:
    if isinstance(values, LazyColumn):
        return values.selected(list(map(bool, kept)))
    return list(compress(items_of(values), kept))


def several(name: str, found: Any) -> list[Any]:
    """Return what the function of a `flat_map` returned, in a list of its own.

    The function may fill the same list again for the next record.
    """
    if isinstance(found, list | tuple):
        return [*found]
    if found is None or isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise StreamsError(
            f'the function of step "{name}" returned a {type(found).__name__}: it must return '
            "a list, or another iterable, of what comes next"
        )
    return list(found)


def results_of(function: Callable[[Any, Any], Any], batch: Batch) -> list[Any]:
    """Return what a function of key and value returns for each record.

    `map` would take a `StopIteration` of the function, as of `next` without a default, as the end
    of the batch.
    """
    return [function(key, value) for key, value in zip(*_items(batch), strict=True)]


def _items(batch: Batch) -> tuple[Sequence[Any], Sequence[Any]]:
    return items_of(batch.keys), items_of(batch.values)


def times_each(items: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, items, counts)))


def repeated(
    batch: Batch, counts: Sequence[int], keys: Sequence[Any], values: Sequence[Any]
) -> Batch:
    """Return a batch with new keys and values, and the rest from their origins."""
    return Batch(
        keys,
        values,
        times_each(items_of(batch.timestamps), counts),
        None if batch.headers is None else times_each(batch.headers, counts),
        None if batch.offsets is None else times_each(batch.offsets, counts),
        None if batch.clocks is None else times_each(batch.clocks, counts),
    )


@dataclass(frozen=True, slots=True)
class Stateless(Operation):
    """A step that treats each record by itself: a link of a chain."""

    keeps_places = True
    needs_time = False

    method: str
    part: type[Part]
    function: Any
    """The function that the part takes, or the column expression."""

    label: str | None = None
    """The name of the step as errors show it, if that is another one."""

    @property
    def verb(self) -> str:
        return self.method

    def link(self, step: Step, compiler: Compiling) -> type[Part]:
        """Return the kind of part that the step becomes."""
        return self.part

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add one processor for the longest chain that begins here."""
        if _continues_chain(step, compiler):
            return
        chain = [step]
        while (child := _only_child(chain[-1], compiler)) is not None:
            chain.append(child)
        name = chain_name(step, compiler)
        links = [
            (
                each.operation.link(each, compiler),
                each.operation.label or each.name,
                each.operation.function,
            )
            for each in chain
            if isinstance(each.operation, Stateless)
        ]
        compiler.builder.add_processor(name, partial(_make_chain, links), compiler.parents(step))
        compiler.produces(chain[-1], name)


class DropNullKeys(Stateless):
    """Drops records without a key ahead of a repartition, unless a step needs them (KIP-962)."""

    __slots__ = ()

    def link(self, step: Step, compiler: Compiling) -> type[Part]:
        """Return a part that passes everything on if a step after the topic takes null keys."""
        waiting = compiler.children(step)
        while waiting:
            waiting = [c for each in waiting for c in compiler.children(each)]
            if any(each.operation.takes_null_keys for each in waiting):
                return PassPart
            waiting = [each for each in waiting if not each.operation.begins_group]
        return self.part


def drop_null_keys() -> DropNullKeys:
    """Return the step in front of a repartition."""
    return DropNullKeys("drop_null_keys", KeyedPart, unused)


def chain_name(step: Step, compiler: Compiling) -> str:
    """Return the name of the processor of the chain that begins with a step."""
    names = [step.name]
    while (child := _only_child(step, compiler)) is not None:
        step = child
        names.append(step.name)
    return "+".join(names)


def unused() -> None:
    """Take the place of a function in a step that has none."""


def _only_child(step: Step, compiler: Compiling) -> Step | None:
    """Return the next link of a chain."""
    children = compiler.children(step)
    if len(children) != 1:
        return None
    child = children[0]
    return child if isinstance(child.operation, Stateless) and len(child.parents) == 1 else None


def _continues_chain(step: Step, compiler: Compiling) -> bool:
    return (
        len(step.parents) == 1
        and isinstance(step.parents[0].operation, Stateless)
        and _only_child(step.parents[0], compiler) is step
    )


def _make_chain(links: Sequence[tuple[type[Part], str, Any]]) -> Chain:
    return Chain([part(name, function) for part, name, function in links])


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
        nodes = results_of(self._branching.choose, batch)
        for node in dict.fromkeys(nodes):
            if node:
                self.context.forward(selected(batch, [each == node for each in nodes]), node)

    def process_record(self, record: Record) -> None:
        node = self._branching.choose(record.key, record.value)
        if node:
            self.context.forward(record, node)


@dataclass(frozen=True, slots=True)
class Split(Operation):
    """Sends each record to the first branch whose predicate holds, in order (KIP-418)."""

    verb = "split"
    keeps_places = True
    needs_time = False

    predicates: Mapping[str, Predicate]
    default: str | None

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add a processor, which forwards to the nodes that begin the branches."""
        nodes = {
            child.operation.branch: chain_name(child, compiler)
            for child in compiler.children(step)
            if isinstance(child.operation, Branch)
        }
        branching = Branching(
            step.name,
            [(nodes[branch], predicate) for branch, predicate in self.predicates.items()],
            "" if self.default is None else nodes[self.default],
        )
        compiler.runs(step, partial(Splitter, branching))


@dataclass(frozen=True, slots=True)
class Branch(Stateless):
    """The beginning of one of the streams that a split makes."""

    branch: str = ""


def branch(name: str) -> Branch:
    """Return the step that begins a branch."""
    return Branch(f"split.{name}", PassPart, unused, branch=name)
