"""What is said where Spark's cluster is not named, or lets a start wait."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
import structlog

from kafka_pipeline.common.config.config import SparkConfig
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.monitoring.long_wait import LongWait
from kafka_pipeline.streams.spark import session, start
from kafka_pipeline.streams.spark.session import start_session
from kafka_pipeline.streams.spark.start import prepare_spark, start_spark
from tests.unit.taskmanager.fakes import CONFIG


def test_yarn_without_the_folder_of_its_settings_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark itself would say it on the standard error of its JVM, and give no reason here."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    config = replace(CONFIG, spark=SparkConfig(master="yarn"))
    with pytest.raises(ConfigError, match="needs HADOOP_CONF_DIR in the environment"):
        prepare_spark(config, {})


def test_a_start_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    class Wait(LongWait):
        def look(self, now_s: float, *, waits: bool) -> None:
            assert waits
            looked.set()

    def start(_: object) -> Any:
        assert looked.wait(20)
        raise RuntimeError("the end of the start")

    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setattr(session, "_LOOK_S", 0.01)
    monkeypatch.setattr(session, "enter_zone", lambda _: None)
    with pytest.raises(RuntimeError, match="the end of the start"):
        start_session({}, Wait(structlog.get_logger(), ""))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] too little.\n"
            'Increase "spark.driver.memory".\n'
            "\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)\n",
            "SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] too little. "
            'Increase "spark.driver.memory".',
        ),
        ("[JAVA_GATEWAY_EXITED] Java is gone.", "[JAVA_GATEWAY_EXITED] Java is gone."),
        ("", "RuntimeError"),
    ],
)
def test_what_spark_says_is_the_reason(
    error: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError(error)

    monkeypatch.setattr(start, "start_session", fail)
    with pytest.raises(UnavailableError) as caught:
        start_spark(CONFIG, "a name", {})
    assert str(caught.value) == f"Spark does not start with master local[*]: {said}"
