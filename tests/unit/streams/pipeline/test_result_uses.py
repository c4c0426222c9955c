"""Which queries are asked for the columns of their results, and where misfits are reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import ProcessorSpec, SqlSpec
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.unit.streams.pipeline.loading import CONFIG

PIPELINE = """
- {id: Rows, type: sql, format: json, schema: a INT, query: SELECT a FROM input, to: [Table, Both]}
- {id: Text, type: sql, query: "SELECT to_json(struct(1 AS id)) AS value FROM input", to: [Also]}
- {id: Sink, type: sql, format: json, schema: a INT, query: SELECT a AS b FROM input, to: [sink]}
- {id: Both, type: forward, to: [sink]}
- id: Table
  type: table
  format: delta
  path: lake/t
  schema: id INT NOT NULL, a DATE
- {id: Also, type: table, format: delta, path: lake/u, schema: id INT NOT NULL}
"""


def test_only_results_that_a_table_reads_as_columns_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    config = replace(CONFIG, tables=TableSettings(write_paths=(str(tmp_path),), folder=tmp_path))
    asked: list[str] = []

    def results(specs: Sequence[ProcessorSpec]) -> list[str]:
        asked.extend(spec.query for spec in specs if isinstance(spec, SqlSpec))
        return [types] * len(specs)

    types = '{"fields": [{"name": "a", "type": "timestamp"}, {"name": "key", "type": "date"}]}'
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file, config, results=results)
    assert asked == ["SELECT a FROM input"]
    assert [f"{p.line}:{p.column}: {p.message}" for p in caught.value.problems] == [
        '10:11: "Table": the results of "Rows" do not fit: column "id" is NOT NULL, and missing',
        '10:11: "Table": the results of "Rows" do not fit: column "a" is TIMESTAMP, and the table '
        "has DATE",
    ]
    types = ""  # Spark cannot say
    load_pipeline(file, config, results=results)
