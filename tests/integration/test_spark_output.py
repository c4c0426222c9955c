"""What Spark's JVM prints when it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

START = """
from streams.sql import environment
from streams.sql.session import start_session

environment.set_environment([])
options = environment.QUIET["spark.driver.extraJavaOptions"]
settings = environment.QUIET | environment.LOCAL | {
    "spark.master": "local[1]",
    "spark.app.name": "test",
    "spark.driver.extraJavaOptions": options + " -Xverify:none",
}
session = start_session(settings)
print(session.range(3).count())
session.sparkContext._jvm.System.err.println("an error of the JVM")
"""


def test_jvm_warns_of_all_but_the_incubator_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", START],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    warning, error = done.stderr.splitlines()
    assert "-Xverify:none" in warning
    assert error == "an error of the JVM"
    assert "incubator" not in done.stdout
