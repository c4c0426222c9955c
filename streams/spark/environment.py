"""What Spark finds around it: Java, and this process's Python with the user's code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.java import find_java

LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"
"""Of Spark's own log."""

# No record passes through the JVM but those of queries. With the second compiler (C2), batches took
# more CPU time in their first minute: 10 records 47 ms against 29, 100,000 records 69 against 57.
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of the JVMs of drivers and executors."""

CLASS_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""Spark's classes as a JVM of this machine holds them in memory; `class_archive` makes it."""


def driver_options(archive: str) -> str:
    """Return the options of a driver's JVM; `archive` says what to do with which class archive.

    Of that, the JVM is to say no more than errors, on standard output.
    """
    return (
        f"{SMALL_JVM} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} "
        f'-Xlog:cds*=error "-XX:{archive}"'
    )


QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without one, or with one that is not its own, the JVM starts all the same.
    "spark.driver.extraJavaOptions": driver_options(f"SharedArchiveFile={CLASS_ARCHIVE}"),
}
"""Settings of every driver, before those of config.yaml."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings of a driver that only this host is to reach."""

_SECRET = re.compile(r"secret|password|token|access\.?key", re.IGNORECASE)


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a command line may hold: it shows to everybody on the host."""
    return {name: value for name, value in settings.items() if not _SECRET.search(name)}


def set_environment(python_path: Sequence[Path], worker_python: str = sys.executable) -> None:
    """Let the Spark that starts next, and its Python workers, be like this process.

    Workers on other hosts may have their interpreter elsewhere: `worker_python`.
    Raises `UnavailableError` without Java 17.
    """
    os.environ["JAVA_HOME"] = str(find_java().home)
    # Workers must run the interpreter that has the project and its dependencies.
    os.environ["PYSPARK_PYTHON"] = worker_python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folders = [*map(str, python_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    if folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
