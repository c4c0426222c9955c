"""Finds what is wrong with a topology before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.engine.node_group import GlobalStore
from kafka_pipeline.streams.engine.nodes import Node, ProcessorNode, Sink, Source
from kafka_pipeline.streams.engine.topology import InternalTopic
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.stores import StoreBuilder

Connections = Sequence[tuple[str, str]]


def check(
    nodes: Sequence[Node],
    stores: Sequence[StoreBuilder[Any, Any]],
    connections: Connections,
    internal: Sequence[InternalTopic],
    globals_: Sequence[GlobalStore],
) -> None:
    """Raise a `TopologyError` that lists every problem, one per line."""
    problems = [
        *_bad_names(nodes, stores, globals_),
        *_bad_parents(nodes, globals_),
        *_cycles(nodes),
        *_bad_connections(nodes, stores, connections, globals_),
        *_bad_topics(nodes, internal),
        *_bad_global_topics(nodes, internal, globals_),
    ]
    # Wrong names lead to dead ends, which would only repeat the problem.
    problems = problems or [*_dead_ends(nodes, stores, connections), *_bad_lookups(nodes)]
    if problems:
        raise TopologyError("\n".join(problems))


def _bad_names(
    nodes: Sequence[Node],
    stores: Sequence[StoreBuilder[Any, Any]],
    globals_: Sequence[GlobalStore],
) -> Iterator[str]:
    if not nodes:
        yield "the topology is empty: add a source, a processor and a sink"
    all_nodes = [*nodes, *(node for each in globals_ for node in each.group.nodes)]
    for what, names in (
        ("node", [node.name for node in all_nodes]),
        ("store", [store.name for store in (*stores, *(each.store for each in globals_))]),
    ):
        for name, count in Counter(names).items():
            if not name.strip():
                yield f"the name of a {what} must be a string with something in it, not {name!r}"
            elif count > 1:
                yield f'two {what}s have the name "{name}"'


def _bad_parents(nodes: Sequence[Node], globals_: Sequence[GlobalStore]) -> Iterator[str]:
    by_name = {node.name: node for node in nodes}
    owners = {node.name: each.store.name for each in globals_ for node in each.group.nodes}
    for node in nodes:
        if not isinstance(node, Source) and not node.parents:
            yield f'"{node.name}" has no parents: name the nodes that forward to it'
        for parent in node.parents:
            if parent in owners:
                yield (
                    f'"{node.name}" has the parent "{parent}", a node of the global store '
                    f'"{owners[parent]}", which forwards to nobody else'
                )
            elif parent not in by_name:
                hint = did_you_mean(parent, (name for name in by_name if name != node.name))
                yield f'"{node.name}" has an unknown parent "{parent}"{hint}'
            elif isinstance(by_name[parent], Sink):
                yield f'"{node.name}" has the sink "{parent}" as parent: sinks forward nothing'
        for parent, count in Counter(node.parents).items():
            if count > 1:
                yield f'"{node.name}" has the parent "{parent}" twice'


def _cycles(nodes: Sequence[Node]) -> Iterator[str]:
    parents = {node.name: node.parents for node in nodes}
    sound: set[str] = set()
    for start in parents:
        path = [start]
        stack = [iter(parents[start])]
        while stack:
            parent = next(stack[-1], None)
            if parent is None:
                stack.pop()
                sound.add(path.pop())
            elif parent in path:
                circle = [*path[path.index(parent) :], parent]
                yield f"the nodes form a cycle: {' -> '.join(reversed(circle))}"
                return
            elif parent in parents and parent not in sound:
                path.append(parent)
                stack.append(iter(parents[parent]))


def _bad_connections(
    nodes: Sequence[Node],
    stores: Sequence[StoreBuilder[Any, Any]],
    connections: Connections,
    globals_: Sequence[GlobalStore],
) -> Iterator[str]:
    by_name = {node.name: node for node in nodes}
    of_globals = {each.processor.name: each.store.name for each in globals_}
    processors = [node.name for node in nodes if isinstance(node, ProcessorNode)]
    names = [store.name for store in stores]
    for processor, store in dict.fromkeys(connections):
        if store in of_globals.values() and store not in names:
            yield (
                f'store "{store}" is global, so "{processor}" can read it as it is: '
                "do not connect it"
            )
            continue
        if processor in of_globals:
            yield (
                f'"{processor}" fills the global store "{of_globals[processor]}" and can use no '
                f'other: do not connect "{store}"'
            )
        elif processor not in by_name:
            hint = did_you_mean(processor, processors)
            yield f'store "{store}" is for an unknown processor "{processor}"{hint}'
        elif processor not in processors:
            yield f'store "{store}" is for "{processor}", which is not a processor'
        if store not in names:
            yield f'"{processor}" uses an unknown store "{store}"{did_you_mean(store, names)}'


def _bad_topics(nodes: Sequence[Node], internal: Sequence[InternalTopic]) -> Iterator[str]:
    sources = [node for node in nodes if isinstance(node, Source)]
    read = [topic for source in sources for topic in source.topics]
    written = {topic for node in nodes if isinstance(node, Sink) for topic in node.topics}
    own = {topic.name for topic in internal}
    back = {topic for source in sources if source.feedback for topic in source.topics}
    for source in sources:
        if not source.topics and source.pattern is None:
            yield f'source "{source.name}" has no topics'
    for topic, count in Counter(read).items():
        if count > 1:
            yield f'topic "{topic}" has {count} sources: add one, with several children'
    for source in sources:
        matching = [t for t in read if source.pattern and source.pattern.fullmatch(t)]
        if matching:
            yield f'the pattern of source "{source.name}" matches "{matching[0]}" of another source'
    for topic in sorted(written.intersection(read) - own - back):
        yield (
            f'topic "{topic}" is read and written: give its source feedback=True if its records '
            "are to come back, or add_internal_topic if they only pass; in a StreamsBuilder, go on "
            "with the stream or table that is written there"
        )
    for topic in sorted(back & own):
        yield f'topic "{topic}" is internal, so its source must not have feedback=True'
    for source in sources:
        matching = sorted(t for t in written if source.pattern and source.pattern.fullmatch(t))
        if matching:
            yield f'the pattern of source "{source.name}" matches "{matching[0]}" of a sink'
    for topic, count in Counter(topic.name for topic in internal).items():
        if count > 1:
            yield f'internal topic "{topic}" is added {count} times'
    for topic in sorted(own):
        if topic not in read or topic not in written:
            yield f'internal topic "{topic}" needs a sink that writes it and a source that reads it'


def _bad_global_topics(
    nodes: Sequence[Node], internal: Sequence[InternalTopic], globals_: Sequence[GlobalStore]
) -> Iterator[str]:
    sources = [node for node in nodes if isinstance(node, Source)]
    followers = Counter(each.topic for each in globals_)
    for each in globals_:
        where = f'topic "{each.topic}" of global store "{each.store.name}"'
        for source in sources:
            if each.topic in source.topics:
                yield f'{where} is read by source "{source.name}" too: give each its own'
            elif source.pattern and source.pattern.fullmatch(each.topic):
                yield f'the pattern of source "{source.name}" matches {where}'
        if any(topic.name == each.topic for topic in internal):
            yield f"{where} is internal: what is processed is deleted there"
    for topic, count in followers.items():
        if count > 1:
            yield f'topic "{topic}" has {count} global stores: give each its own'


def _dead_ends(
    nodes: Sequence[Node], stores: Sequence[StoreBuilder[Any, Any]], connections: Connections
) -> Iterable[str]:
    parents = {parent for node in nodes for parent in node.parents}
    for node in nodes:
        if isinstance(node, Source) and node.name not in parents:
            yield f'source "{node.name}" leads nowhere: no node has it as parent'
    used = {store for _, store in connections}
    for store in stores:
        if store.name not in used:
            yield f'no processor uses store "{store.name}"'


def _bad_lookups(nodes: Sequence[Node]) -> Iterator[str]:
    parents = {node.name: node.parents for node in nodes}
    looked_up = {node.name for node in nodes if isinstance(node, Source) and node.looked_up}
    for sink in nodes:
        reached: set[str] = set()
        waiting = [sink.name] if isinstance(sink, Sink) else []
        while waiting:
            name = waiting.pop()
            waiting += [parent for parent in parents[name] if parent not in reached]
            reached.update(parents[name])
            if name in looked_up:
                looked_up.remove(name)
                yield (
                    f'source "{name}" has looked_up=True, but its records reach the sink '
                    f'"{sink.name}": leave looked_up out, as results have the times of its records'
                )
