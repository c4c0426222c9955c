"""Queries on a Spark that tests and `pipeline validate` start themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_config import SMALL_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
CONFIG = (
    SMALL_CONFIG
    + """spark:
  master: spark://nowhere:7077
  conf:
    spark.sql.ansi.enabled: "false"
    spark.sql.session.timeZone: Asia/Tokyo
    spark.executor.memory: 1g
    spark.authenticate.secret: hidden
"""
)
PIPELINE = """
- id: P
  type: sql
  query: SELECT concat(hour(timestamp), coalesce(CAST(value AS INT), 'none')) AS value FROM input
  to: [sink]
"""
DRIVE = """
import sys
from pathlib import Path
from kafka_pipeline.testing import TopologyTestDriver
with TopologyTestDriver.of_pipeline(Path(sys.argv[1]), Path(sys.argv[2])) as driver:
    driver.create_input_topic("in").pipe_input(b"k", b"text", timestamp=0)
    print("found", driver.create_output_topic("out").read_records()[0].value.decode())
"""


def test_settings_of_config_hold_for_the_driver_for_tests(tmp_path: Path) -> None:
    """Those that change what a query gives; where the cluster is matters not."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    files = [str(tmp_path / "config.yaml"), str(tmp_path / "pipeline.yaml")]
    done = subprocess.run(
        [sys.executable, "-c", DRIVE, *files], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert "found 9none" in done.stdout, done.stderr


TABLE = """
- id: P
  type: sql
  query: SELECT name AS value FROM input JOIN names ON key = code
  tables: {names: {format: csv, path: "tables/*.csv", schema: "code STRING, name STRING"}}
  to: [sink]
"""


def test_path_of_a_table_is_relative_to_config_yaml_wherever_the_command_runs(
    tmp_path: Path,
) -> None:
    """By the driver for tests and by `pipeline validate`; Hadoop has a meaning for brackets."""
    folder = tmp_path / "job {a,b} [1] ü"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "names.csv").write_text("k,Kay\n")
    (folder / "config.yaml").write_text(SMALL_CONFIG)
    (folder / "pipeline.yaml").write_text(TABLE)
    files = [str(folder / "config.yaml"), str(folder / "pipeline.yaml")]
    validate = "from kafka_pipeline.admin.cli import main; main()"
    for start, expected in (
        (["-c", DRIVE, *files], "found Kay"),
        (["-c", validate, "validate", *files], "ok: 1 processor, "),
    ):
        done = subprocess.run(
            [sys.executable, *start], cwd=ROOT, capture_output=True, text=True, timeout=200
        )
        assert expected in done.stdout, done.stderr
        assert done.stderr == ""


TWICE = """
import subprocess
from kafka_pipeline.streams.spark.environment import LOCAL, DEFAULTS, set_environment
from kafka_pipeline.streams.spark.session import start_session
set_environment([])
jvms = []
launch = subprocess.Popen.__init__
def counted(self, *arguments, **options):
    jvms.append(arguments)
    launch(self, *arguments, **options)
subprocess.Popen.__init__ = counted
for name in ("first", "second"):
    settings = {**DEFAULTS, **LOCAL, "spark.master": "local[1]", "spark.app.name": name}
    session = start_session(settings)
    print(name, session.sparkContext.appName, session.range(3).count(), len(jvms))
    session.stop()
"""


def test_a_second_session_runs_in_the_jvm_of_the_first() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", TWICE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout.splitlines() == ["first first 3 1", "second second 3 1"], done.stderr
