"""The time zone of Spark's processes, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.spark.zone import TIME_ZONE, adopted, zoned

ENTER = f"""
from kafka_pipeline.streams.spark.zone import enter_zone, zoned
enter_zone(zoned({{"{TIME_ZONE}": "Europe/Berlin"}}))
"""


@pytest.mark.parametrize(
    ("conf", "zone", "variable"),
    [
        ({}, "UTC", "UTC"),
        ({TIME_ZONE: "Asia/Kolkata"}, "Asia/Kolkata", "Asia/Kolkata"),
        ({TIME_ZONE: "+05:30"}, "+05:30", "<+053000>-05:30:00"),
    ],
)
def test_workers_have_the_zone_of_the_session(
    conf: dict[str, str], zone: str, variable: str
) -> None:
    """SPARK-33863"""
    assert zoned(conf) == {TIME_ZONE: zone, "spark.executorEnv.TZ": variable}


def test_one_process_has_one_zone() -> None:
    context = SimpleNamespace(environment={"TZ": "UTC"})
    running: Any = SimpleNamespace(sparkContext=context)
    with pytest.raises(ConfigError, match="runs in this process with the time zone UTC, and spark"):
        adopted(running, {TIME_ZONE: "Europe/Berlin"})


def test_host_without_files_of_zones_is_refused(tmp_path: Path) -> None:
    """The C library would take UTC, and Python's `zoneinfo` has files of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ENTER],
        cwd=Path(__file__).parents[4],
        env=os.environ | {"TZDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "this host has no files of the time zone Europe/Berlin" in done.stderr
    assert "install its package tzdata" in done.stderr
