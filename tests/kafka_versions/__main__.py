"""Runs integration tests against other versions of Kafka.

python -m tests.kafka_versions                       # the tests of FILES on each version
python -m tests.kafka_versions --version 3.7.2       # on one
python -m tests.kafka_versions tests/integration/test_task.py -k aborted   # other tests
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.brokers import SETTINGS, local_cluster
from tests.kafka_versions.jars import JARS

_INTEGRATION = Path("tests", "integration")
FILES = (
    *("test_pipeline.py", "test_task.py", "test_transactions.py", "test_one_job.py"),
    *("test_dsl_cluster.py", "test_records.py", "test_savepoints.py", "test_reset.py"),
    *("test_backfill.py", "test_standby.py", "test_lag.py", "test_proven_ends.py"),
    *("test_dropped_producers.py", "test_lost_state.py", "test_topic_command.py"),
    *("test_topic_settings.py", "test_grow.py", "test_spark_sql.py"),
)
"""The files of tests/integration that ask most of the brokers."""


def main() -> int:
    """Run the tests on each version, and print a line for each. Returns 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_versions")
    parser.add_argument("--version", action="append", choices=[*JARS], help="by default, all")
    given, of_pytest = parser.parse_known_args()
    tests = of_pytest or [str(_INTEGRATION / name) for name in FILES]
    codes = {version: _run(version, tests) for version in given.version or JARS}
    for version, code in codes.items():
        print(f"Kafka {version}: {'failed' if code else 'passed'}")
    return int(any(codes.values()))


def _run(version: str, tests: list[str]) -> int:
    with (
        tempfile.TemporaryDirectory(prefix=f"kafka-{version}-") as folder,
        local_cluster(Path(folder), settings=SETTINGS, jar_set=JARS[version]) as servers,
    ):
        command = [sys.executable, "-m", "pytest", "-rfEs", "-q", "--broker", servers, *tests]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
