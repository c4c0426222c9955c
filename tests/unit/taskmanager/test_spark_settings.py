"""A TaskManager's Spark settings: slots for its threads, and no secrets that others can read."""

from __future__ import annotations

import os

import pytest

from kafka_pipeline.common.config.config import SparkConfig
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.spark.environment import without_secrets
from kafka_pipeline.taskmanager.spark_settings import SparkSettings, spark_settings, unguarded

STANDALONE = "spark://host:7077"


def settings(master: str, threads: int = 2, /, **conf: str) -> SparkSettings:
    named = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    return spark_settings(SparkConfig(master=master, conf=named), threads)


def test_local_master_gets_slots_for_threads_their_queries_and_spares() -> None:
    threads = os.cpu_count() or 1
    found = settings("local[*]", threads)
    assert found.values["spark.master"] == f"local[{3 * threads}]"
    assert found.values["spark.driver.host"] == "127.0.0.1"
    assert found.no_queries == ""
    assert found.spares == threads


@pytest.mark.parametrize(
    ("master", "conf", "spares"),
    [
        ("local[4]", {}, 0),
        ("local[5]", {}, 1),
        ("local[9]", {}, 2),
        (STANDALONE, {}, 0),
        (STANDALONE, {"cores_max": "6"}, 2),
        ("yarn", {"dynamicAllocation_enabled": "true"}, 0),
    ],
)
def test_slots_that_neither_threads_nor_queries_need_are_for_spares(
    master: str, conf: dict[str, str], spares: int
) -> None:
    assert settings(master, 2, **conf).spares == spares


@pytest.mark.parametrize("master", ["local[2]", "local[2, 4]"])
def test_local_master_with_a_slot_for_each_thread_runs_no_queries(master: str) -> None:
    found = settings(master)
    assert found.values["spark.master"] == master
    assert "use local[*] or local[4]" in found.no_queries


@pytest.mark.parametrize(
    ("master", "conf", "cure"),
    [
        ("local", {}, "use local[*] or local[4]"),
        ("local[1]", {}, "use local[*] or local[4]"),
        (STANDALONE, {"cores_max": "1"}, "set spark.cores.max to 4"),
        (STANDALONE, {"executor_cores": "4", "cores_max": "3"}, "set spark.cores.max to 4"),
        ("yarn", {"executor_instances": "1"}, "set spark.executor.instances to 4"),
    ],
)
def test_fewer_slots_than_threads_are_refused(master: str, conf: dict[str, str], cure: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        settings(master, 2, **conf)
    assert cure in str(refusal.value)


@pytest.mark.parametrize(
    ("master", "conf", "wanted"),
    [
        (STANDALONE, {}, {"executor.cores": "1", "cores.max": "3"}),
        (STANDALONE, {"executor_cores": "2"}, {"executor.cores": "2", "cores.max": "4"}),
        (STANDALONE, {"task_cpus": "2"}, {"executor.cores": "2", "cores.max": "6"}),
        (STANDALONE, {"cores_max": "8"}, {"executor.cores": "1", "cores.max": "8"}),
        ("yarn", {}, {"executor.cores": "1", "executor.instances": "3"}),
        ("k8s://https://host", {}, {"executor.cores": "1", "executor.instances": "3"}),
        ("yarn", {"executor_cores": "2"}, {"executor.cores": "2", "executor.instances": "2"}),
    ],
)
def test_cluster_is_asked_for_an_executor_for_each_thread_unless_config_says_else(
    master: str, conf: dict[str, str], wanted: dict[str, str]
) -> None:
    found = settings(master, 3, **conf).values
    assert {name: found[f"spark.{name}"] for name in wanted} == wanted
    assert "spark.driver.host" not in found


@pytest.mark.parametrize(
    ("master", "conf", "runs"),
    [
        (STANDALONE, {}, False),
        (STANDALONE, {"cores_max": "3"}, True),
        (STANDALONE, {"executor_cores": "2", "cores_max": "3"}, False),
        ("yarn", {}, False),
        ("yarn", {"executor_instances": "4"}, True),
        ("yarn", {"dynamicAllocation_enabled": "true"}, True),
    ],
)
def test_queries_need_a_slot_that_no_thread_holds(
    master: str, conf: dict[str, str], runs: bool
) -> None:
    assert (settings(master, 2, **conf).no_queries == "") is runs


def test_executors_that_come_as_they_are_needed_are_not_counted() -> None:
    found = settings("yarn", dynamicAllocation_enabled="true").values
    assert "spark.executor.instances" not in found


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5"])
def test_number_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r'spark\.executor\.cores of config\.yaml is "'):
        settings(STANDALONE, executor_cores=text)


def test_executor_that_is_too_small_for_one_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"below spark\.task\.cpus"):
        settings(STANDALONE, executor_cores="1", task_cpus="2")


def test_config_wins_over_defaults_but_for_what_tasks_rely_on() -> None:
    found = settings(STANDALONE, ui_enabled="true", task_maxFailures="4", speculation="true").values
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.task.maxFailures"] == "1"
    assert found["spark.speculation"] == "false"


@pytest.mark.parametrize(
    "name",
    [
        *("authenticate.secret", "ssl.keyPassword", "hadoop.fs.s3a.access.key", "x.token"),
        "hadoop.fs.azure.account.key.me.dfs.core.windows.net",
        "hadoop.fs.azure.sas.raw.me.blob.core.windows.net",
        "hadoop.google.cloud.auth.service.account.private.key",
    ],
)
def test_secrets_are_kept_from_the_command_line(name: str) -> None:
    conf = {f"spark.{name}": "hidden", "spark.authenticate": "true"}
    found = spark_settings(SparkConfig(master=STANDALONE, conf=conf), 1).values
    assert found[f"spark.{name}"] == "hidden"
    assert "hidden" not in without_secrets(found).values()
    assert without_secrets(found)["spark.authenticate"] == "true"


def test_one_slot_and_one_thread_are_said_in_the_singular() -> None:
    with pytest.raises(ConfigError, match="has 1 slot, but 2 threads need one each"):
        settings("local[1]")
    assert "no slot for queries next to 1 thread: " in settings("local[1]", 1).no_queries


def test_settings_without_which_others_can_read_what_spark_sends_or_spills_are_named() -> None:
    names = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
    assert unguarded(settings("local[*]").values) == []
    assert unguarded(settings("yarn").values) == [*names]
    assert unguarded(settings("yarn", authenticate="true").values) == [*names[1:]]
    assert unguarded(dict.fromkeys(names, "TRUE")) == []
    assert unguarded(settings("local[*]", authenticate="false").values) == [names[0]]
