"""The environment that Spark runs in: Java, and this process's Python with the user's code."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import find_java
from kafka_pipeline.common.security.secret_names import is_secret

LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"
"""The settings of Spark's own log."""

# For batches of 50,000 records, code of Java's second compiler takes a third of the CPU time. At
# its own thresholds, it compiles so much while Spark starts and plans that this takes half as long
# again. At ten times those, it compiles little more than what a query does with each record.
# It starts with a small heap, which grows as needed: by default, that would be a 64th of the
# machine's memory, and Java fills all of it before it collects anything.
_JVM = (
    "-Xms32m -XX:+UseSerialGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)

NO_EXTERNAL_DTD = ("javax.xml.accessExternalDTD", "")
"""A property of the JVM. Without it, `xpath_string` loads any file or URL that its XML names."""

EXECUTOR_JVM = f"{_JVM} -D{'='.join(NO_EXTERNAL_DTD)}"
"""Options of the JVMs of executors."""

CLASS_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""Spark's classes as a JVM of this machine holds them in memory; `class_archive` makes the file."""


def driver_options(archive: str) -> str:
    """Return the options of a driver's JVM; `archive` says what to do with which class archive.

    The JVM logs to standard output. Since Java 24, it logs an error there about an archive that
    it cannot use, and goes on without it.
    """
    return (
        f'{_JVM} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} -Xlog:cds*=off "-XX:{archive}"'
    )


_LOCALE = "C.UTF-8"
"""The locale of each JVM, whatever its host has. In a Turkish one, `lower` and `upper` give other
letters, and with `LC_ALL=C`, or a locale that is not installed, Java does not find a file whose
name is not ASCII."""

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without an archive, or with one that it did not make, the JVM starts all the same.
    "spark.driver.extraJavaOptions": driver_options(f"SharedArchiveFile={CLASS_ARCHIVE}"),
    # Larger results become blocks, which Spark encrypts, and fetches over its network even from
    # itself: a fifth of the CPU time of a batch of 20 MB.
    "spark.task.maxDirectResultSize": "100m",
    # Otherwise, its Python workers look for modules in the current folder first.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.executorEnv.LC_ALL": _LOCALE,
}
"""Settings of every driver, which those of config.yaml override."""

# Spark's ports are open to others, and its blocks, which it may spill to the disk, have the
# configuration in them. With a local master, Spark makes a secret of its own for each start.
GUARDED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
"""Settings that keep what Spark sends and spills from others."""

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    **GUARDED,
}
"""Settings of a driver with a local master: reachable from this host only, and by itself only."""

SHORT_LIVED = {
    "spark.driver.extraJavaOptions": f"{DEFAULTS['spark.driver.extraJavaOptions']} "
    "-XX:TieredStopAtLevel=1"
}
"""Settings of the drivers of commands and of tests, for which the second compiler never pays."""

_OF_OTHERS = (
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_SUBMIT_OPTS",
    "SPARK_REMOTE",
    "SPARK_CONNECT_MODE_ENABLED",
)
"""Variables that change the JVM that is started, or its settings, or have PySpark start none."""

_LAUNCH = Path(__file__).parent / "launch.sh"
_BASH_ENV = "BASH_ENV"


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that may be on a command line, which everybody on the host can see."""
    return {name: value for name, value in settings.items() if not is_secret(name)}


def set_environment(python_path: Sequence[Path], worker_python: str = sys.executable) -> None:
    """Give the next Spark to start, and its Python workers, the environment of this process.

    `worker_python` is the workers' interpreter, which may be elsewhere on other hosts.
    Raises `UnavailableError` without Java 17, if Python finds another PySpark first, or if the user
    of this process has no name.
    """
    _leave_other_spark()
    _require_name()
    os.environ["JAVA_HOME"] = str(find_java().home)
    # Workers must run the interpreter that has the project and its dependencies.
    os.environ["PYSPARK_PYTHON"] = worker_python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["LC_ALL"] = _LOCALE
    folders = [*map(str, python_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    if folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)


def _leave_other_spark() -> None:
    """Forget what the user's shell has for other programs that use Spark.

    PySpark would start the JVM of a `SPARK_HOME` of another version, and fail in many ways. With
    settings of a `spark-defaults.conf` or of variables, queries would give other results than on
    hosts without them. Raises `UnavailableError` for a `PYTHONPATH` with another PySpark.
    """
    installed = distribution("pyspark")
    spec = find_spec("pyspark")
    found = Path(spec.origin).parent if spec is not None and spec.origin else None
    own = Path(str(installed.locate_file("pyspark")))
    if found is not None and found.resolve() != own.resolve():
        raise UnavailableError(
            f"Python finds the PySpark in {found} before {installed.version}, which is installed "
            "with this engine: take its folder out of PYTHONPATH."
        )
    home = Path(os.environ.get("SPARK_HOME", own))
    if not any(home.glob(f"jars/spark-core_*-{installed.version}.jar")):
        os.environ.pop("SPARK_HOME", None)
    for variable in _OF_OTHERS:
        os.environ.pop(variable, None)
    # Else that of `SPARK_HOME`. There is none in the package.
    os.environ["SPARK_CONF_DIR"] = str(own / "conf")


def _require_name() -> None:
    """Raise `UnavailableError` if Spark's JVM would not start, as Hadoop asks for the user's name.

    Its errors are about the folder `?/.ivy2`, or an "invalid null input: name".
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise UnavailableError(
            f"this process runs as user {os.getuid()}, who is not in /etc/passwd, and Spark does "
            f"not start without: add the user in the container's image (`useradd --uid "
            f"{os.getuid()} pipeline`), or run as a user that it has."
        ) from None


@contextmanager
def corrected_launcher() -> Iterator[None]:
    """Start Spark's JVM with a command that is corrected in two places.

    Spark's launcher adds the module `jdk.incubator.vector`, of which each start would warn on
    stderr. Only its machine learning uses that. And a jar that is on the class path twice keeps
    Java 21 from using a class archive (the check of JDK-8279366). The launcher has no settings for
    either. So bash, which runs it, reads `launch.sh` first. If bash has another file to read
    already, nothing changes.
    """
    if _BASH_ENV in os.environ:
        yield
        return
    os.environ[_BASH_ENV] = str(_LAUNCH)
    try:
        yield
    finally:
        del os.environ[_BASH_ENV]
