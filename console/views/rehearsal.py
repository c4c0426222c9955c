"""A rehearsal: the version that the job runs, the new one, and what differs in their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.console.views.drawn import Json, arc, nodes
from kafka_pipeline.console.views.figures import worst_state
from kafka_pipeline.operations.rehearsal.changes import ShownVersion
from kafka_pipeline.operations.rehearsal.comparer import Side
from kafka_pipeline.operations.rehearsal.publication import Published, ShownFigures
from kafka_pipeline.operations.rehearsal.report_json import ReportJson

_NOT_DATA = ("timestamp", "headers")


def rehearsal(found: Published | None, *, with_records: bool) -> dict[str, Any]:
    """Return a rehearsal; keys and values of records only `with_records`."""
    if found is None:
        return {"rehearsal": None}
    its = found.publication
    return {
        "rehearsal": {
            "phase": its.phase,
            "by": its.by,
            "began_at_ms": its.began_at_ms,
            "until_ms": its.until_ms,
            "ended_at_ms": its.ended_at_ms,
            "written_at_ms": found.written_at_ms,
            "reason": its.reason,
            "versions": {
                side: _graph(version, its.figures.get(side, {}))
                for side, version in its.versions.items()
            },
            "report": its.report and _report(its.report, with_records=with_records),
            "has_records": its.report is not None and _has_records(its.report),
            "with_records": with_records,
        }
    }


def _graph(version: ShownVersion, figures: Mapping[str, ShownFigures]) -> Json:
    processors = {
        each.id: {
            "type": each.type,
            "change": each.change,
            "differs": list(each.differs),
            **_figures(figures.get(each.id)),
        }
        for each in version.processors
    }
    return {
        "nodes": nodes(processors, version.links),
        "arcs": [arc(link, {}) for link in version.links],
    }


def _figures(known: ShownFigures | None) -> Json:
    if known is None:
        return {"state": None, "states": {}, "tasks": None, "lag": None, "dead_letters": None}
    return {
        "state": worst_state(known.states),
        "states": dict(known.states),
        "tasks": sum(known.states.values()),
        "lag": known.lag,
        "dead_letters": known.dead_letters,
    }


def _report(report: ReportJson, *, with_records: bool) -> Json:
    shown: Json = as_json(report)
    if not with_records:
        for output in shown["outputs"].values():
            for example in output["examples"]:
                _hide(example)
    return shown


def _hide(example: Json) -> None:
    """Take what is data out of an example: key, values, and the names of fields that differ."""
    example.pop("key", None)
    differs = example["differs"]
    known = [name for name in differs if name in _NOT_DATA]
    example["differs"] = known if len(known) == len(differs) else [*known, "value"]
    for side in Side:
        if example[side] is not None:
            example[side].pop("value", None)


def _has_records(report: ReportJson) -> bool:
    """Whether keys and values were published."""
    examples = (each for output in report.outputs.values() for each in output.examples)
    return any(each.key is not None for each in examples)
