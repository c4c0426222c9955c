"""Starts Spark where config.yaml says, and ships code to the executors of a cluster."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import structlog
from pyspark.sql import SparkSession

from kafka_pipeline.common.code.engine_code import ENGINE, ENGINE_FOLDER
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.monitoring.long_wait import LongWait
from kafka_pipeline.streams.engine.user_files import python_files
from kafka_pipeline.streams.spark.environment import set_environment
from kafka_pipeline.streams.spark.session import start_session

_PYTHON = "spark.pyspark.python"
_YARN = "yarn"
_HADOOP_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PACKAGES = ("common", "streams", "taskmanager")
"""The engine's packages that a PipelineThread imports."""

_NO_ANSWER = (
    "Spark has not started yet: see whether the cluster's manager runs, and has room for one more "
    "application"
)

logger = structlog.get_logger()


def prepare_spark(config: Config, settings: Mapping[str, str]) -> None:
    """Give this process the environment in which Spark starts; looks at this host only.

    Raises `UnavailableError` without Java 17, and `ConfigError` if nothing says where YARN is.
    """
    python = sys.executable
    if not config.spark.is_local:
        # The executors' hosts may have their interpreter elsewhere.
        python = settings.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or python
    if config.spark.master == _YARN and not any(map(os.environ.get, _HADOOP_VARIABLES)):
        raise ConfigError(
            f"spark.master {_YARN} of config.yaml needs {_HADOOP_VARIABLES[0]} in the environment: "
            "set it to the folder with the yarn-site.xml and core-site.xml of the cluster"
        )
    set_environment(config.python_path, python)


def start_spark(config: Config, name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark with these settings, and a name for its UI; takes some seconds.

    `prepare_spark` comes first. A cluster's manager may take its time, such as YARN, whose queue
    may be full. A log says so.

    Raises `UnavailableError` if Spark does not start, and see `start_session`.
    """
    wait = None
    if not config.spark.is_local:
        wait = LongWait(logger.bind(master=config.spark.master), _NO_ANSWER)
    try:
        session = start_session({"spark.app.name": name, **settings}, wait)
    except UnavailableError:
        raise
    except Exception as error:
        raise UnavailableError(
            f"Spark does not start with master {config.spark.master}: {_reason(error)}"
        ) from error
    if config.log_record_values:
        log_throwables(session)
    return session


def _reason(error: Exception) -> str:
    """Return what Java or PySpark say, without Java's stack and the name of its constructor."""
    said = str(error).partition("\n\tat ")[0]
    said = re.sub(r"An error occurred while calling .*\n: ", "", said)
    return " ".join(said.split()) or type(error).__name__


def log_throwables(session: SparkSession) -> None:
    """Have Spark's own log show exceptions, whose messages may quote records."""
    java: Any = session._jvm
    java.java.lang.System.setProperty("pipeline.log.throwables", "short")
    java.org.apache.logging.log4j.core.config.Configurator.reconfigure()


def ship_code(session: SparkSession, config: Config) -> int:
    """Ship the engine and the user's code to the executors of a cluster.

    Returns the number of files: 0 with a local master, whose workers find the code themselves.
    """
    if config.spark.is_local:
        return 0
    context = session.sparkContext
    # In Spark's own folder, which its JVM removes even if this process is killed.
    archive = Path(str(context._temp_dir), "pipeline.zip")
    files = write_archive(archive, config.python_path, config.modules)
    context.addPyFile(str(archive))
    return files


def write_archive(file: Path, python_path: Sequence[Path] = (), modules: Sequence[str] = ()) -> int:
    """Write the modules that PipelineThreads import; return the number of files.

    These are the engine, all Python files below the folders of `python_path`, and the top-level
    packages of `modules`, wherever this process finds them. If two files have the same name, the
    first in this order counts. Packages with compiled modules are left out: Python cannot import
    those from a zip, so they must be installed where they are used, like all other libraries. Files
    that are not Python are left out too.
    """
    written: set[str] = set()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for source, name in _files(python_path, modules):
            if name not in written:
                written.add(name)
                # Without its modification time: a zip cannot store one before 1980.
                archive.writestr(name, source.read_bytes())
    return len(written)


def _files(python_path: Sequence[Path], modules: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for file in sorted(ENGINE_FOLDER.glob("*.py")):
        yield file, f"{ENGINE}/{file.name}"
    for package in _PACKAGES:
        yield from _tree(ENGINE_FOLDER / package, ENGINE_FOLDER.parent)
    for folder in python_path:
        yield from _tree(folder, folder)
    for module in dict.fromkeys(module.split(".")[0] for module in modules):
        yield from _module(module)


def _module(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a top-level module or package; nothing for one that is built in."""
    spec = find_spec(name)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield Path(spec.origin), f"{name}.py"
        return
    for location in map(Path, spec.submodule_search_locations):
        compiled = (path for suffix in EXTENSION_SUFFIXES for path in location.rglob(f"*{suffix}"))
        if not any(compiled):
            yield from _tree(location, location.parent)


def _tree(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    for file in python_files(folder):
        yield file, file.relative_to(root).as_posix()
