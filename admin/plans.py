"""What a change does to a job, in the form shown on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import unified_diff

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kafka_pipeline.common.cluster.code_versions import CodeChange, code_changes
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.printable import printable
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion
from kafka_pipeline.deployment.plan import Effect, Plan
from kafka_pipeline.deployment.store_contents import StateEffect
from kafka_pipeline.operations.cluster_watcher import read_status
from kafka_pipeline.streams.engine.user_files import code_fingerprints

_COLORS = {
    Effect.ADDED: "green",
    Effect.RESTARTED: "yellow",
    Effect.REMOVED: "red",
    StateEffect.FOUND: "yellow",
    StateEffect.NEW: "green",
    StateEffect.CONVERTED: "yellow",
    StateEffect.LOST: "red",
    StateEffect.IMPOSSIBLE: "red",
    StateEffect.UNCHECKED: "yellow",
}


_MOST_LINES = 60


def changed_code(config: Config, deployment: Deployment, pipeline: Pipeline) -> list[CodeChange]:
    """Return the user's modules whose code on this host differs from what TaskManagers run.

    Blocks and raises as `read_status`, if a version runs and there are modules to compare.
    """
    here = code_fingerprints(config.modules, config.python_path) if deployment.current else {}
    return code_changes(here, read_status(config).code, pipeline) if here else []


def overview(
    found: Plan, current: PipelineVersion | None, text: str, code: Sequence[CodeChange] = ()
) -> RenderableType:
    """Return a plan in the form shown on a terminal; `text` is the new pipeline.yaml.

    `code` has the modules whose code differs from what TaskManagers run.
    """
    if found.changes_nothing and current is not None:
        line = f"nothing changes: the job runs this pipeline, as version {current.number}"
        return Group(Text(line), *_code(code))
    parts: list[RenderableType] = [_since(current), *_edits(current, text), "", _tasks(found)]
    parts += _state(found)
    if found.renamed:
        parts += ["", Text("Renamed, while the job rests:")]
        parts += [Text(f"  {old} becomes {new}") for new, old in found.renamed.items()]
    if found.inputs:
        parts += ["", Text("Read for the first time:")]
        parts += [
            Text(f"  {each.topic} by {each.processor}, from its {_END[each.begins]}")
            for each in found.inputs
        ]
    own = [topic for topic in found.made if topic not in found.made_of_user]
    for title, topics in (
        ("Topics made:", own),
        (_MISSING, found.made_of_user),
        ("Topics orphaned:", found.orphaned),
    ):
        if topics:
            parts += ["", Text(title), *(Text(f"  {topic}") for topic in topics)]
    if found.arcs:
        parts += ["", Text("Drained first, while their writers are held:")]
        parts += [
            Text(
                f"  {arc.topic}, read by {arc.reader}, written by {', '.join(arc.writers)}"
                + (f"\n        {arc.change}" if arc.change else "")
            )
            for arc in found.arcs
        ]
    if found.losses:
        parts += [
            "",
            Text("Taken away:", style="red"),
            *(Text(f"  {each}") for each in found.losses),
        ]
    return Group(*parts, *_code(code))


def _code(changes: Sequence[CodeChange]) -> list[RenderableType]:
    lines = [Text(f"  {each}") for each in changes]
    return ["", Text("Code changed:", style="yellow"), *lines] if lines else []


def _state(found: Plan) -> list[RenderableType]:
    """Return the lines about stores: each one of which there is something to say, with reasons.

    Stores of a processor mostly have the same reason, which is said once. What is taken away is
    not said here.
    """
    if not found.stores:
        return []
    kept = sum(store.effect is StateEffect.KEPT for store in found.stores)
    lines: list[RenderableType] = ["", Text(f"State: {counted(kept, 'store')} kept")]
    said = ("", "")
    for store in found.stores:
        if store.effect is StateEffect.LEFT or (
            store.effect is StateEffect.KEPT and not store.reason
        ):
            continue
        lines.append(
            Text.assemble(
                "  ",
                (f"{store.effect:5}", _COLORS.get(store.effect, "")),
                f' "{store.name}" of {store.processor} ({store.topic})',
            )
        )
        if store.reason and said != (store.processor, store.reason):
            lines.append(Text(f"        {store.reason}"))
        said = (store.processor, store.reason)
    return lines


_MISSING = (
    "Sources and sinks missing (made with the brokers' settings, unless `pipeline topic create` "
    "makes them before):"
)
_END = {"earliest": "oldest record", "latest": "end"}


def _since(current: PipelineVersion | None) -> Text:
    if current is None:
        return Text("the job has no pipeline yet")
    return Text(f"the job runs version {current.number}, made by {current.made_by}")


def _edits(current: PipelineVersion | None, text: str) -> list[RenderableType]:
    """Return the lines of the file that differ from those of the running version."""
    if current is None:
        return []
    files = current.text.splitlines(), text.splitlines()
    # The first two lines name the files.
    diff = [line for line in [*unified_diff(*files, n=0, lineterm="")][2:] if line[0] != "@"]
    if not diff:
        return []
    colors = {"-": "red", "+": "green"}
    lines = [Text(f"  {printable(line)}", style=colors[line[0]]) for line in diff[:_MOST_LINES]]
    more = len(diff) - len(lines)
    rest = [Text(f"  and {counted(more, 'more line')}")] if more else []
    return ["", Text("Lines of the file:"), *lines, *rest]


def _tasks(found: Plan) -> Table:
    table = Table("tasks", "of", title="Tasks", title_justify="left")
    for effect in Effect:
        of = [task for task, its in found.tasks.items() if its is effect]
        if not of:
            continue
        by_processor = Counter(task.processor for task in of)
        names = ", ".join(f"{name} ({count})" for name, count in by_processor.items())
        table.add_row(Text(f"{len(of)} {effect}", style=_COLORS.get(effect, "")), names)
    return table
