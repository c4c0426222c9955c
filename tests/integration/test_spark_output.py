"""What Spark's JVM prints when it starts, and when it logs an exception."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

START = """
from kafka_pipeline.streams.spark import environment, start
from kafka_pipeline.streams.spark.session import start_session

environment.set_environment([])
options = environment.DEFAULTS["spark.driver.extraJavaOptions"]
settings = environment.DEFAULTS | environment.LOCAL | {
    "spark.master": "local[1]",
    "spark.app.name": "test",
    "spark.driver.extraJavaOptions": options + " -Xverify:none",
}
session = start_session(settings)
print(session.range(3).count())
java = session.sparkContext._jvm
java.System.err.println("an error of the JVM")
for _ in range(2):
    logger = java.org.apache.logging.log4j.LogManager.getLogger("Work")
    logger.error("a task failed", java.java.lang.RuntimeException("4111111111111111 is odd"))
    start.log_throwables(session)
"""


def test_jvm_warns_of_all_but_the_incubator_module_and_logs_no_messages_of_exceptions() -> None:
    """They are logged only with `log_record_values`."""
    done = subprocess.run(
        [sys.executable, "-c", START],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    warning, error, hidden, shown, *rest = done.stderr.splitlines()
    assert "-Xverify:none" in warning
    assert error == "an error of the JVM"
    assert "incubator" not in done.stdout
    assert hidden.endswith("Work: a task failed")
    assert shown.endswith("Work: a task failed")
    assert "4111111111111111 is odd" in "".join(rest)
