"""The key `history` of sources: what is read, and what is refused, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.history import HistorySpec
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.small_config import SMALL_CONFIG

CONFIG = SMALL_CONFIG + 'tables: {paths: [lake], write_urls: ["https://c/api"]}\n'
PARTS = "record_columns: {key: k, timestamp: t, partition: p, offset: o}"
OWN = f"written_by: shop/Orders, {PARTS}"
DELTA = f"format: delta, path: lake/t, {OWN}"


def load(folder: Path, source: str, processor: str = "type: count, to: [sink]") -> Pipeline:
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "pipeline.yaml").write_text(
        f"sources: {{a: {{topic: t, {source}}}}}\nprocessors: [{{id: A, from: [a], {processor}}}]"
    )
    return load_pipeline(folder / "pipeline.yaml", load_config(folder / "config.yaml"))


@pytest.mark.parametrize(
    ("place", "spec"),
    [
        ("format: delta, path: lake/t", {"format": "delta", "path": "lake/t"}),
        ("format: parquet, path: lake/t", {"format": "parquet", "path": "lake/t"}),
        (
            "format: iceberg, table: s.t, catalog: {type: rest, uri: 'https://c/api'}",
            {
                "format": "iceberg",
                "table": "s.t",
                "catalog": {"type": "rest", "uri": "https://c/api", "name": "default"},
            },
        ),
    ],
)
def test_a_history_is_read(tmp_path: Path, place: str, spec: dict[str, str]) -> None:
    history = load(tmp_path, f"history: {{{place}, {OWN}}}").processor("A").sources["a"].history
    columns = {"key": "k", "timestamp": "t", "partition": "p", "offset": "o"}
    assert history == HistorySpec(**spec, written_by="shop/Orders", record_columns=columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (f"history: {{path: lake/t, {OWN}}}", 'missing key "format" (such as delta)'),
        (f"history: {{format: delta, {OWN}}}", 'missing key "path" (the folder'),
        (f"history: {{format: iceberg, path: lake/t, {OWN}}}", "format: iceberg takes no path"),
        (f"history: {{format: delta, path: lake/t, {PARTS}}}", 'missing key "written_by"'),
        (
            f"history: {{format: delta, path: lake/t, written_by: Orders, {PARTS}}}",
            "written_by must be a job/processor",
        ),
        (
            "history: {format: delta, path: lake/t, written_by: s/O, record_columns: {key: k}}",
            'missing key "offset" (a column)',
        ),
        ("history: {format: delta, path: lake/t, written_by: s/O}", 'missing key "key" (a column)'),
        (f"history: {{format: delta, path: elsewhere, {OWN}}}", "is outside of what config.yaml"),
        (
            f"history: {{format: delta, path: 'lake/${{X}}', {OWN}}}",
            "references have no values here",
        ),
        (f"history: {{{DELTA}}}, auto_offset_reset: latest", "would leave it out"),
        (f"history: {{{DELTA}}}, changelog: true", "with changelog, a null value deletes a key"),
        (f"history: {{{DELTA}}}, value: string", "the rows of a table become JSON"),
        (f"history: {{{DELTA}}}, feedback: true", "records that come back are not in a table"),
    ],
)
def test_what_is_wrong_with_a_history_is_said(tmp_path: Path, source: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, source)
    assert problem in str(caught.value)


def test_a_lookup_table_does_not_begin_with_a_history(tmp_path: Path) -> None:
    query = (
        'type: sql, to: [sink], query: "SELECT n FROM input", schema: "n INT", format: json, '
        "tables: {b: {topic: a, schema: 'n INT'}}"
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"history: {{{DELTA}}}", query)
    assert 'source "a" must not say history' in str(caught.value)
