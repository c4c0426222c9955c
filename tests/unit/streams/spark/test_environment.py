"""The environment that Spark is started in, if the user's shell has another Spark."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.spark.environment import DEFAULTS, set_environment

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


@pytest.mark.parametrize(
    "variable",
    ["PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"],
)
def test_settings_for_other_programs_are_forgotten(variable: str) -> None:
    os.environ[variable] = "-Dspark.sql.ansi.enabled=false"
    set_environment([])
    assert variable not in os.environ


@pytest.mark.parametrize("is_set", [True, False])
def test_no_spark_defaults_are_read(is_set: bool, tmp_path: Path) -> None:
    """With other settings of Spark, a query would give other results on this host."""
    home = Path(os.environ.setdefault("SPARK_HOME", spark_home(tmp_path, SPARK)))
    if is_set:
        os.environ["SPARK_CONF_DIR"] = str(home / "conf")
    set_environment([])
    assert os.environ["SPARK_HOME"] == str(home)
    folder = Path(os.environ["SPARK_CONF_DIR"])
    assert folder.parent.name == "pyspark"
    assert not folder.exists()


@pytest.mark.parametrize("locale", ["C", "tr_TR.UTF-8", None])
def test_java_has_the_same_locale_everywhere(locale: str | None) -> None:
    os.environ.pop("LC_ALL", None)
    if locale is not None:
        os.environ["LC_ALL"] = locale
    set_environment([])
    assert os.environ["LC_ALL"] == DEFAULTS["spark.executorEnv.LC_ALL"] == "C.UTF-8"


def test_a_user_without_a_name_is_refused_as_hadoop_would_not_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container with `--user 54321`: `basedir must be absolute: ?/.ivy2.5.2/local`."""
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(UnavailableError, match="user 54321, who is not in /etc/passwd"):
        set_environment([])


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
