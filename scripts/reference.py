"""Writes what is made from code: the schemas of the two YAML files, and reference tables.

Run it as `python -m scripts.reference` after a change of a key, a metric or a command; a test
compares the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kafka_pipeline.jobmanager.metrics
import kafka_pipeline.taskmanager.metrics
from kafka_pipeline import serdes
from kafka_pipeline.admin.schema import SchemaName, schema_file, schema_text
from kafka_pipeline.common.config.config_keys import CONFIG_KEYS
from kafka_pipeline.common.config.keys import ConfigKey, Free, Section
from kafka_pipeline.common.monitoring.exposition import PROCESS_METRICS
from kafka_pipeline.common.monitoring.metric import PREFIX, Metric
from kafka_pipeline.common.monitoring.times import BOUNDS_S
from kafka_pipeline.streams.pipeline.file import FILE_KEYS
from kafka_pipeline.streams.pipeline.kinds.kind import (
    FROM,
    ID,
    MAX_DEAD_LETTERS,
    NO_CONFIG,
    ON_ERROR,
    TO,
    TYPE,
    WAS,
    Kind,
)
from kafka_pipeline.streams.pipeline.kinds.registry import KINDS
from kafka_pipeline.streams.pipeline.kinds.sources import SOURCE_KEYS
from scripts.command_pages import command_sections
from scripts.names_page import name_sections

ROOT = Path(__file__).resolve().parent.parent

_COMMON = (ID, WAS, TYPE, FROM, TO, ON_ERROR, MAX_DEAD_LETTERS)
_MADE = "<!-- Written by scripts/reference.py: change the descriptors in the code instead. -->"


def written_files() -> dict[str, str]:
    """Return the text of each file, by its path in the project."""
    return {
        **{schema_file(name): schema_text(name) for name in SchemaName},
        "docs/reference/config_keys.md": _config_page(),
        "docs/reference/pipeline_keys.md": _pipeline_page(),
        "docs/reference/metrics.md": _metrics_page(),
        "docs/reference/pipeline_commands.md": _commands_page(),
        "docs/reference/names.md": _names_page(),
    }


def _config_page() -> str:
    return _page(
        "# Keys of config.yaml",
        "Any value may be a string with `${VAR}`. [config.yaml](config.md) explains the file.",
        *_table(CONFIG_KEYS),
    )


def _pipeline_page() -> str:
    return _page(
        "# Keys of pipeline.yaml",
        "[pipeline.yaml](pipeline.md) explains the file. A serde is "
        f"{', '.join(f'`{serde}`' for serde in serdes.NAMES[:-1])} or `{serdes.NAMES[-1]}`. "
        "Those of sources and classes may also be `avro`, `json_schema` or `protobuf`, "
        "[with schemas](../how-to/use_schemas.md).",
        "## The file",
        "The file is the list of processors alone, or a map:",
        *_table(FILE_KEYS),
        "## A source",
        "A source is the name of a topic, or a map:",
        *_table(SOURCE_KEYS),
        "## Every processor",
        *_table(_COMMON),
        *(line for kind in KINDS for line in _of_type(kind)),
    )


def _metrics_page() -> str:
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS_S)
    return _page(
        "# Metrics",
        "What `/metrics` shows on the `metrics_port` of each daemon, in the format of Prometheus. "
        "[Monitor](../how-to/monitor.md) says how to collect it.",
        "Counters of tasks count committed work since the task came to its TaskManager; they begin "
        "at 0 again when the task moves or its PipelineThread is started again, but for dead "
        "letters, skipped and dropped records, which outlast that. A task that has "
        "left its TaskManager has no series there. [Status](status.md#figures-of-a-task) explains "
        f"the figures. Histograms count times up to {bounds} seconds.",
        "Each daemon also has the usual metrics of its process: "
        + ", ".join(f"`{name}`" for name in PROCESS_METRICS)
        + ". On other systems than Linux, they are missing.",
        "## JobManager",
        *_metrics_table(kafka_pipeline.jobmanager.metrics.METRICS),
        "## TaskManager",
        *_metrics_table(kafka_pipeline.taskmanager.metrics.OF_THE_DAEMON),
        "## Tasks",
        "Their TaskManager shows them.",
        *_metrics_table(kafka_pipeline.taskmanager.metrics.OF_TASKS),
        "Code has [metrics of its own](processors.md#counters-and-gauges-of-your-own), too: "
        f"`{PREFIX}{kafka_pipeline.taskmanager.metrics.USER_COUNTER.format(name='<name>')}` and "
        f"`{PREFIX}{kafka_pipeline.taskmanager.metrics.USER_GAUGE.format(name='<name>')}`.",
        "## Standbys",
        "Copies of state, see `num_standby_replicas`.",
        *_metrics_table(kafka_pipeline.taskmanager.metrics.OF_STANDBYS),
    )


def _commands_page() -> str:
    return _page(
        "# Commands of `pipeline`",
        "This is what `pipeline COMMAND --help` says. [Commands and exit codes](commands.md) has "
        "an overview, and the commands that run daemons.",
        *command_sections(),
    )


def _names_page() -> str:
    return _page(
        "# Names in Python",
        "All that a pipeline and its tests import. [Processors](processors.md), "
        "[streams](dsl.md) and [tests](testing.md) have pages with examples; docstrings have the "
        "arguments, units and errors.",
        *name_sections(),
    )


def _metrics_table(metrics: Sequence[Metric]) -> list[str]:
    """Return a table of the metrics, as one paragraph."""
    lines = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.doc} |")
    return ["\n".join(lines)]


def _of_type(kind: Kind[Any]) -> list[str]:
    missing = [f"`{key.name}`" for key in (*_COMMON, kind.config) if key not in kind.keys]
    if kind.config is NO_CONFIG and NO_CONFIG in kind.keys:
        missing.append(f"`{NO_CONFIG.name}`")
    without = f" It has no {' and no '.join(missing)}." if missing else ""
    own = [key for key in kind.keys if key not in (*_COMMON, NO_CONFIG)]
    return [
        f"## Type `{kind.type_form or kind.spec.type}`",
        f"{kind.doc[0].upper()}{kind.doc[1:]}.{without}",
        *(_table(own) if own else ()),
    ]


def _page(title: str, *paragraphs: str) -> str:
    return "\n\n".join((title, _MADE, *paragraphs)) + "\n"


def _table(keys: Sequence[ConfigKey]) -> list[str]:
    """Return a table of the keys, with those inside of them, as one paragraph."""
    head = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    return ["\n".join(head + _rows(keys, ""))]


def _rows(keys: Sequence[ConfigKey], prefix: str) -> list[str]:
    lines = []
    for key in keys:
        default = f"`{key.default_text}`" if key.default_text else ""
        shown = "**required**" if key.required else default
        lines.append(f"| `{prefix}{key.name}` | {key.kind} | {shown} | {key.doc} |")
        inside = key.keys if isinstance(key, Section) else ()
        inside = key.parts if isinstance(key, Free) else inside
        lines += _rows(inside, f"{prefix}{key.name}.")
    return lines


def main() -> None:
    """Write the files."""
    for path, text in written_files().items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
