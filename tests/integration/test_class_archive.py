"""Tests of the class archive on a real JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pipeline.streams.spark.environment import CLASS_ARCHIVE

pytestmark = pytest.mark.integration

START = """
import sys
from kafka_pipeline.streams.spark import environment
from kafka_pipeline.streams.spark.session import start_session

environment.set_environment([])
options = environment.driver_options(f"SharedArchiveFile={sys.argv[1]}")
settings = environment.DEFAULTS | environment.LOCAL | {
    "spark.master": "local[1]",
    "spark.app.name": "test",
    "spark.driver.extraJavaOptions": f"-Xlog:class+load:file={sys.argv[2]} {options}",
}
print(start_session(settings).range(3).count())
"""

MAKE = """
import sys
from pathlib import Path
from kafka_pipeline.streams.sql.class_archive import make

make(Path(sys.argv[1]))
"""


def sources(archive: Path, log: Path) -> set[str]:
    """Start a Spark with an archive; return where the JVM has Spark's classes from."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(archive), str(log)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "3"
    lines = log.read_text().splitlines()
    found = {
        line.partition("source: ")[2] for line in lines if " org.apache.spark.SparkEnv " in line
    }
    assert found
    return found


@pytest.mark.long
def test_spark_starts_from_the_archive_of_this_environment(tmp_path: Path) -> None:
    assert CLASS_ARCHIVE.exists(), "scripts/setup.sh makes it"
    assert sources(CLASS_ARCHIVE, tmp_path / "log") == {"shared objects file (top)"}


@pytest.mark.long
@pytest.mark.parametrize("content", [None, b"no archive" * 1000])
def test_spark_starts_without_an_archive(tmp_path: Path, content: bytes | None) -> None:
    archive = tmp_path / "archive with a space.jsa"
    if content is not None:
        archive.write_bytes(content)
    (found,) = sources(archive, tmp_path / "log")
    assert found.startswith("file:") or "jar" in found


@pytest.mark.long
def test_a_java_that_makes_no_archive_is_named_with_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAKE, tmp_path / "missing" / "spark-classes.jsa"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 1
    assert "UnavailableError" in done.stderr
    assert "bin/java -Xshare:dump` makes" in done.stderr
