"""A TaskManager's Spark, as far as it can be tested without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, SparkLostError
from kafka_pipeline.taskmanager import spark
from kafka_pipeline.taskmanager.spark import SparkRunner
from kafka_pipeline.taskmanager.spark_settings import SparkSettings
from tests.unit.taskmanager.fakes import CONFIG

URL = "jdbc:postgresql://db.example/shop"
TABLES = {"t": {"format": "jdbc", "options": {"url": URL, "dbtable": "t"}}}


class Files:
    """A Spark session that only says which file it would read."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(set=lambda *_: None, get=lambda _: "UTC")
        self.sparkContext = None

    @property
    def read(self) -> Files:
        return self

    def newSession(self) -> Files:
        return self

    def format(self, _: str) -> Files:
        return self

    def options(self, **_: str) -> Files:
        return self

    def load(self, path: str) -> None:
        raise OSError(f"asked for {path}")


class Asked(Exception):
    """Spark is asked for the tables."""


def ask(*_: object) -> Any:
    raise Asked


def open_query(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(sparkContext=None, newSession=ask)
    monkeypatch.setattr(spark, "start_spark", lambda *_: session)
    monkeypatch.setattr(spark, "ship_code", lambda *_: 0)
    runner = SparkRunner(config, 0, SparkSettings({}))
    runner.queries(UserCode(), Readable.of(config)).open(QuerySpec("SELECT 1", tables=TABLES))


def test_tables_are_read_as_the_taskmanagers_own_config_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(QueryError, match="does not allow jdbc"):
        open_query(CONFIG, monkeypatch)
    listed = replace(CONFIG, tables=TableSettings(jdbc_urls=(URL,)))
    with pytest.raises(Exception, match="Asked"):
        open_query(listed, monkeypatch)


def test_tables_are_found_from_the_folder_of_the_taskmanagers_own_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark, "start_spark", lambda *_: Files())
    monkeypatch.setattr(spark, "ship_code", lambda *_: 0)
    config = replace(CONFIG, tables=TableSettings(folder=Path("/job")))
    tables = {"t": {"format": "csv", "path": "rates.csv"}}
    queries = SparkRunner(config, 0, SparkSettings({})).queries(UserCode(), Readable.of(config))
    with pytest.raises(SparkLostError, match=r"asked for file:///job/rates\.csv"):
        queries.open(QuerySpec("SELECT 1", tables=tables))


def test_a_worker_that_was_killed_is_reported_without_advice_about_settings_of_queries() -> None:
    said = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider "
        "setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled' or "
        "'spark.python.worker.faulthandler.enabled' configuration to 'true' for the better Python "
        "traceback.\n\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    found = spark._summary(RuntimeError(said))
    assert found.endswith(
        "Python worker exited unexpectedly (crashed). It was killed, perhaps because memory ran "
        "out, or a library aborted it."
    )
    assert "faulthandler" not in found
