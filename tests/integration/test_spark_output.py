"""How Spark starts: on which hosts, and what its JVM prints and logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

START = """
import socket
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
print(socket.gethostname(), session.range(3).count())
java = session.sparkContext._jvm
java.System.err.println("an error of the JVM")
for _ in range(2):
    logger = java.org.apache.logging.log4j.LogManager.getLogger("Work")
    logger.error("a task failed", java.java.lang.RuntimeException("4111111111111111 is odd"))
    start.log_throwables(session)
"""


IS_ROOT = os.geteuid() == 0
NAMELESS = ["unshare", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh"]


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """Start Spark once; as root, on a host whose name has no address."""
    return subprocess.run(
        [*(NAMELESS if IS_ROOT else []), sys.executable, "-c", START],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.skipif(not IS_ROOT, reason="gives the host another name, as root")
def test_spark_starts_on_a_host_whose_name_has_no_address(
    done: subprocess.CompletedProcess[str],
) -> None:
    """It is reachable from this host only, at the loopback interface."""
    assert (done.returncode, done.stdout.split()) == (0, ["nowhere.invalid", "3"]), done.stderr


def test_jvm_warns_of_all_but_the_incubator_module_and_logs_no_messages_of_exceptions(
    done: subprocess.CompletedProcess[str],
) -> None:
    """They are logged only with `log_record_values`."""
    assert done.returncode == 0, done.stderr
    warning, error, hidden, shown, *rest = done.stderr.splitlines()
    assert "-Xverify:none" in warning
    assert error == "an error of the JVM"
    assert "incubator" not in done.stdout
    assert hidden.endswith("Work: a task failed")
    assert shown.endswith("Work: a task failed")
    assert "4111111111111111 is odd" in "".join(rest)
