"""Starts Spark where config.yaml says, for PipelineThreads and for bounded work alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.spark.archive import write_archive
from kafka_pipeline.streams.spark.environment import set_environment
from kafka_pipeline.streams.spark.session import start_session

_PYTHON = "spark.pyspark.python"


def start_spark(config: Config, name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark with these settings, and a name for its UI; takes some seconds.

    Raises `UnavailableError` without Java 17 or if Spark does not start, and see `start_session`.
    """
    python = sys.executable
    if not config.spark.is_local:
        # The executors' hosts may have their interpreter elsewhere.
        python = settings.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or python
    set_environment(config.python_path, python)
    try:
        session = start_session({"spark.app.name": name, **settings})
    except UnavailableError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise UnavailableError(
            f"Spark does not start with master {config.spark.master}: {reason}"
        ) from error
    if config.log_record_values:
        log_throwables(session)
    return session


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
