"""`pipeline describe`: the graph, the topics and the tasks, for a terminal or as Mermaid."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from common.config import Config
from common.messages import replicas
from common.nodes import OnError, ProcessorNode, Topology
from common.topics import TopicSpec, control_topics, data_topics, user_topics

_BROKER_DEFAULT = "broker default"
_LAST_PER_KEY = "last record per key"
# Characters that would end a Mermaid label, or be taken for HTML.
_ENTITIES = str.maketrans({'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"})


def overview(config: Config, topology: Topology) -> RenderableType:
    """Return the output for a terminal: the graph as a tree, the topics, the tasks."""
    return Group(
        *_graph(config, topology),
        "",
        _topics(config, topology),
        "",
        _tasks(config, topology),
    )


def mermaid(config: Config, topology: Topology) -> str:
    """Return a Mermaid flowchart: edges show the arcs, dotted ones stores and dead letters."""
    names = config.topic_names
    # Processor ids may contain characters that Mermaid refuses in node ids.
    keys = {node.id: f"p{index}" for index, node in enumerate(topology.nodes)}
    arcs = names.arcs(topology)
    outside = _outside(config, topology)
    lines = ["flowchart LR"]
    lines += [
        f'    {keys[node.id]}["{node.id}<br/>{_parameters(node).translate(_ENTITIES)}"]'
        for node in topology.nodes
    ]
    lines += [f'    {key}(["{topic}"])' for topic, key in outside.items()]
    for node in topology.nodes:
        key = keys[node.id]
        lines += [f"    {outside[t]} --> {key}" for t in names.in_topics(node) if t in outside]
        for number, pattern in enumerate(node.patterns):
            label = pattern.pattern.translate(_ENTITIES)
            lines.append(f'    {key}_pattern{number}(["{label}"]) --> {key}')
        for topic in node.global_stores.values():
            lines.append(f"    {outside[topic]} -.-> {key}")
        for topic in names.out_topics(node):
            if topic in outside:
                lines.append(f"    {key} --> {outside[topic]}")
            else:
                lines.append(f'    {key} -->|"{topic}"| {keys[arcs[topic]]}')
        for number, topic in enumerate(names.states(node).values()):
            lines.append(f'    {key} <-.-> {key}_state{number or ""}[("{topic}")]')
        if node.on_error is OnError.DEAD_LETTER:
            lines.append(f'    {key} -.-> {key}_dead_letter(["{names.dead_letter(node.id)}"])')
    return "\n".join(lines)


def _outside(config: Config, topology: Topology) -> dict[str, str]:
    """Return the topics that are sources and sinks, with their keys in the flowchart."""
    known = {config.source_topic: "source", config.sink_topic: "sink"}
    topics = user_topics(config, topology)
    return {topic: known.get(topic, f"t{number}") for number, topic in enumerate(topics)}


def _graph(config: Config, topology: Topology) -> list[Tree]:
    """Return a tree for each source; a processor is expanded only where it first appears."""
    names = config.topic_names
    arcs = names.arcs(topology)
    unfolded: set[str] = set()

    def add(to: Tree, node: ProcessorNode) -> None:
        if node.id in unfolded:
            to.add(f"{node.id} (see above)")
            return
        unfolded.add(node.id)
        about = f" {_parameters(node)}{_on_error(node)}"
        branch = to.add(Text.assemble((node.id, "bold"), about))
        for store, topic in node.global_stores.items():
            branch.add(f"{store} (global store of topic [bold]{topic}[/bold])")
        for topic in names.out_topics(node):
            if topic in arcs:
                add(branch, topology.node(arcs[topic]))
            else:
                branch.add(f"[bold]{topic}[/bold] (sink)")

    trees: dict[str, Tree] = {}
    for node in topology.nodes:
        for topic in names.in_topics(node):
            if topic not in arcs:
                tree = trees.setdefault(topic, Tree(f"[bold]{topic}[/bold] (source)"))
                add(tree, node)
        for pattern in node.patterns:
            text = pattern.pattern
            where = " (sources, found when the JobManager starts)"
            label = Text.assemble((text, "bold"), where)
            add(trees.setdefault(f"pattern {text}", Tree(label)), node)
    return list(trees.values())


def _topics(config: Config, topology: Topology) -> Table:
    table = _table("Topics", "topic", "partitions", "replicas", "cleanup", "kept")
    arcs = config.topic_names.arcs(topology)
    for group in (data_topics(config, topology), control_topics(config)):
        for topic in group:
            counts = (str(topic.partitions), str(topic.replication_factor))
            kept = "until processed" if topic.name in arcs else _kept(topic)
            table.add_row(topic.name, *counts, _cleanup(topic), kept)
        table.add_section()
    return table


def _tasks(config: Config, topology: Topology) -> Table:
    names = config.topic_names
    table = _table("Tasks", "task", "reads", "writes", "store")
    for replica in replicas(topology, names, config.parallelism):
        partition = replica.task.partition
        table.add_row(
            str(replica.task),
            "\n".join(f"{topic}[{partition}]" for topic in replica.in_topics),
            "\n".join(replica.out_topics),
            "\n".join(f"{topic}[{partition}]" for topic in replica.state_topics.values()),
        )
    return table


def _table(title: str, *headers: str) -> Table:
    """Return an empty table that breaks long names over lines instead of cutting them."""
    return Table(
        *(Column(header, overflow="fold") for header in headers),
        title=title,
        title_justify="left",
    )


def _cleanup(topic: TopicSpec) -> str:
    return topic.config.get("cleanup.policy", _BROKER_DEFAULT)


def _kept(topic: TopicSpec) -> str:
    if _cleanup(topic) == "compact":
        return _LAST_PER_KEY
    retention_ms = topic.config.get("retention.ms")
    if retention_ms is None:
        return _BROKER_DEFAULT
    return "forever" if retention_ms == "-1" else f"{retention_ms} ms"


def _parameters(node: ProcessorNode) -> str:
    what = node.code or node.type.value
    return ", ".join([what, *(f"{key} {value}" for key, value in node.config.items())])


def _on_error(node: ProcessorNode) -> str:
    return "" if node.on_error is OnError.FAIL else f" (on error: {node.on_error})"
