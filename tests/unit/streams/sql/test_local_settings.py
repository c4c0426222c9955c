"""Which of Spark's settings hold for a Spark of this process."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.sql.local import local_settings


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.jars",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.driver.extraClassPath",
    ],
)
def test_what_queries_depend_on_holds_here_too(name: str) -> None:
    assert local_settings({name: "this"})[name] == "this"


@pytest.mark.parametrize(
    "name",
    [
        "spark.master",
        "spark.executor.cores",
        "spark.task.cpus",
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.dynamicAllocation.enabled",
        "spark.authenticate",
        "spark.authenticate.secret",
        "spark.kubernetes.namespace",
        "spark.eventLog.enabled",
    ],
)
def test_where_and_how_a_cluster_runs_is_left_out(name: str) -> None:
    assert local_settings({name: "that"}).get(name) != "that"
