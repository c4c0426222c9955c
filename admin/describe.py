"""The graph, the topics and the tasks of a pipeline, for a terminal or as Mermaid."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import ArcKind, OnError, PipelineProcessor
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of

_BROKER_DEFAULT = "broker default"
_LAST_PER_KEY = "last record per key"
# Characters that would end a Mermaid label, or be taken for HTML.
_ENTITIES = str.maketrans({'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"})


def overview(config: Config, pipeline: Pipeline) -> RenderableType:
    """Return the output for a terminal: the graph as a tree, the topics, the tasks."""
    return Group(
        *_graph(pipeline),
        "",
        _topics(config, pipeline),
        "",
        _tasks(pipeline),
    )


def mermaid(pipeline: Pipeline) -> str:
    """Return a Mermaid flowchart: edges show the arcs, dotted ones stores and dead letters.

    The label of an arc that does not carry plain records says what it carries.
    """
    # Processor ids may contain characters that Mermaid refuses in node ids.
    keys = {each.id: f"p{index}" for index, each in enumerate(pipeline.processors)}
    arcs, outside = pipeline.arcs, _outside(pipeline)
    lines = ["flowchart LR"]
    lines += [
        f'    {keys[each.id]}["{each.id}<br/>{_parameters(each).translate(_ENTITIES)}"]'
        for each in pipeline.processors
    ]
    lines += [f'    {key}(["{topic}"])' for topic, key in outside.items()]
    for processor in pipeline.processors:
        key = keys[processor.id]
        inputs = [topic for topic in pipeline.in_topics(processor) if topic in outside]
        for topic in inputs:
            label = _label(_not_plain(pipeline.kind_of_source(topic, processor)))
            lines.append(f"    {outside[topic]} -->{label} {key}")
        for number, pattern in enumerate(processor.patterns):
            label = pattern.pattern.translate(_ENTITIES)
            lines.append(f'    {key}_pattern{number}(["{label}"]) --> {key}')
        for topic in processor.global_stores.values():
            lines.append(f"    {outside[topic]} -.-> {key}")
        given = pipeline.kinds_given(processor)
        for topic in pipeline.out_topics(processor):
            kind = _not_plain(given[topic])
            if topic in outside:
                lines.append(f"    {key} -->{_label(kind)} {outside[topic]}")
            else:
                lines.append(f"    {key} -->{_label(topic, kind)} {keys[arcs[topic]]}")
        for number, topic in enumerate(pipeline.state_topics(processor).values()):
            lines.append(f'    {key} <-.-> {key}_state{number or ""}[("{topic}")]')
        if dead_letters := pipeline.dead_letter_topic(processor):
            lines.append(f'    {key} -.-> {key}_dead_letter(["{dead_letters}"])')
    return "\n".join(lines)


def _label(*lines: str) -> str:
    """Return the label of an edge; none without text."""
    text = "<br/>".join(filter(None, lines))
    return f'|"{text}"|' if text else ""


def _outside(pipeline: Pipeline) -> dict[str, str]:
    """Return the topics that are sources and sinks, with their keys in the flowchart."""
    known = {pipeline.names.source: "source", pipeline.names.sink: "sink"}
    return {t: known.get(t, f"t{number}") for number, t in enumerate(pipeline.user_topics)}


def _graph(pipeline: Pipeline) -> list[Tree]:
    """Return a tree for each source; a processor is expanded only where it first appears."""
    arcs = pipeline.arcs
    unfolded: set[str] = set()

    def add(to: Tree, processor: PipelineProcessor) -> None:
        if processor.id in unfolded:
            to.add(f"{processor.id} (see above)")
            return
        unfolded.add(processor.id)
        about = f" {_parameters(processor)}{_gives(processor)}{_on_error(processor)}"
        if query := pipeline.query_of_stage(processor):
            about += f" (stage of {query})"
        branch = to.add(Text.assemble((processor.id, "bold"), about))
        for kept in kind_of(processor.spec).keeps(processor.spec):
            branch.add(Text(f"keeps {kept}"))
        for store, topic in processor.global_stores.items():
            branch.add(f"{store} (global store of topic [bold]{topic}[/bold])")
        for topic in pipeline.out_topics(processor):
            if topic in arcs:
                add(branch, pipeline.processor(arcs[topic]))
            else:
                branch.add(f"[bold]{topic}[/bold] (sink)")
        if processor.chooses_topics:
            branch.add("topics that a function chooses (sinks)")

    trees: dict[str, Tree] = {}
    for processor in pipeline.processors:
        for topic in pipeline.in_topics(processor):
            if topic not in arcs:
                kind = _not_plain(pipeline.kind_of_source(topic, processor))
                about = f"source, {kind}" if kind else "source"
                tree = trees.setdefault(topic, Tree(f"[bold]{topic}[/bold] ({about})"))
                add(tree, processor)
        for pattern in processor.patterns:
            text = pattern.pattern
            where = " (sources, found when the JobManager starts)"
            label = Text.assemble((text, "bold"), where)
            add(trees.setdefault(f"pattern {text}", Tree(label)), processor)
    return list(trees.values())


def _topics(config: Config, pipeline: Pipeline) -> Table:
    table = _table("Topics", "topic", "partitions", "replicas", "cleanup", "kept")
    arcs = pipeline.arcs
    for group in (pipeline.data_topics(config.replication_factor), control_topics(config)):
        for topic in group:
            counts = (str(topic.partitions), str(topic.replication_factor))
            kept = "until processed" if topic.name in arcs else _kept(topic)
            table.add_row(topic.name, *counts, _cleanup(topic), kept)
        table.add_section()
    return table


def _tasks(pipeline: Pipeline) -> Table:
    table = _table("Tasks", "task", "reads", "writes", "store")
    for replica in replicas(pipeline):
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


def _parameters(processor: PipelineProcessor) -> str:
    spec = processor.spec
    return ", ".join([spec.what, *(f"{key} {value}" for key, value in spec.parameters.items())])


def _gives(processor: PipelineProcessor) -> str:
    """Return what the results of a processor are, if they are not plain records."""
    return "".join(f", gives {kind.words}" for kind in dict.fromkeys(processor.gives.values()))


def _not_plain(kind: ArcKind) -> str:
    """Return what records are, in words; "" for plain ones."""
    return "" if kind is ArcKind.RECORDS else kind.words


def _on_error(processor: PipelineProcessor) -> str:
    return "" if processor.on_error is OnError.FAIL else f" (on error: {processor.on_error})"
