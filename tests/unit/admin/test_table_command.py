"""`pipeline table compact` and `pipeline validate`, for tables that processors write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_pipeline import serdes
from kafka_pipeline.testing import TopologyTestDriver
from tests.in_process import run_pipeline
from tests.small_config import SMALL_CONFIG

CONFIG = SMALL_CONFIG + 'tables: {write_paths: [lake], write_urls: ["postgresql://h/d"]}\n'
PIPELINE = """
- {id: A, type: table, format: delta, path: lake/a, schema: n INT, from: [source]}
- {id: B, type: table, format: delta, path: lake/b, schema: n INT, from: [source]}
- {id: C, type: table, format: postgres, url: "postgresql://h/d", table: c, schema: n INT,
   from: [source]}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    for path, text in zip(paths, (CONFIG, PIPELINE), strict=True):
        path.write_text(text)
    return [*map(str, paths)]


def test_the_small_files_of_a_table_are_joined(files: list[str], tmp_path: Path) -> None:
    alone = tmp_path / "alone.yaml"
    alone.write_text(PIPELINE.partition("- {id: B")[0])
    for number in range(3):
        with TopologyTestDriver.of_pipeline(tmp_path / "config.yaml", alone) as driver:
            driver.create_input_topic("in", serdes.bytes, serdes.json).pipe_input(
                b"k", {"n": number}
            )
    path = tmp_path / "lake" / "a"
    assert run_pipeline("table", "compact", *files) == (
        "A: joined 3 files into 1, and deleted 0 old files\n"
        f"B: there is no table yet at {tmp_path / 'lake' / 'b'}\n"
    )
    assert len(DeltaTable(str(path)).file_uris()) == 1
    assert sorted(DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2]
    assert run_pipeline("table", "compact", *files, "--processor", "A") == (
        "A: joined 0 files into 0, and deleted 0 old files\n"
    )


def test_only_delta_tables_are_compacted(files: list[str]) -> None:
    said = run_pipeline("table", "compact", *files, "--processor", "C", "--processor", "D", code=2)
    assert "C, D: no processor with this id writes a Delta table" in said
    Path(files[1]).write_text("- {id: A, type: forward, to: [sink]}")
    said = run_pipeline("table", "compact", *files, code=2)
    assert "no processor of this pipeline writes a Delta table" in said


def test_storage_that_cannot_be_read_is_reported(files: list[str], tmp_path: Path) -> None:
    log = tmp_path / "lake" / "a" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("spoilt")
    said = run_pipeline("table", "compact", *files, code=3)
    assert f"table {tmp_path / 'lake' / 'a'}: " in said


def test_validate_notices_that_a_package_is_missing(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ok: 3 processors" in run_pipeline("validate", *files)
    for package, names in (("deltalake", "AB"), ("psycopg", "C")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            said = run_pipeline("validate", *files, code=2)
            for name in names:
                assert f'"{name}": format: ' in said
            assert f"needs the package {package}" in said
            assert 'pip install "kafka-pipeline[tables]"' in said
