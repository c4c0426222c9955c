"""The environment that Spark is started in, if the user's shell has another Spark."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.spark.environment import set_environment

SPARK = version("pyspark")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))


def spark_home(folder: Path, version: str) -> str:
    (folder / "jars").mkdir()
    (folder / f"jars/spark-core_2.13-{version}.jar").touch()
    return str(folder)


@pytest.mark.parametrize(("version", "stays"), [(SPARK, True), ("3.5.1", False)])
def test_a_spark_of_another_version_is_not_started(
    version: str, stays: bool, tmp_path: Path
) -> None:
    """PySpark started the JVM of that one: `'JavaPackage' object is not callable`."""
    os.environ["SPARK_HOME"] = home = spark_home(tmp_path, version)
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master yarn pyspark-shell"
    set_environment([])
    assert os.environ.get("SPARK_HOME") == (home if stays else None)
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_a_pyspark_that_hides_that_of_the_engine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UnavailableError, match=f"in {tmp_path}/pyspark before {SPARK}"):
        set_environment([])
