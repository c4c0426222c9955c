"""Starts the Spark of this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streams.sql.environment import NO_EXTERNAL_DTD, without_incubator_module, without_secrets

_FOLDER, _FOLDER_VARIABLE = "spark.local.dir", "SPARK_LOCAL_DIRS"


def start_session(settings: Mapping[str, str]) -> SparkSession:
    """Return a session with these settings, and no others. Raises whatever Spark raises.

    Spark starts in its own thread. Ctrl-C in the middle of PySpark's code would leave a JVM running
    forever: it does not find the folder where it must report that it is up, and does not end. In
    the main thread, PySpark would also install its own SIGINT handler.
    """
    with ThreadPoolExecutor(1, "spark-start") as starter:
        context = starter.submit(_start, settings).result()
    return SparkSession(context)


def _start(settings: Mapping[str, str]) -> SparkContext:
    """Start the JVM without secrets, which its command line would show; set them afterwards.

    With a local master, batches and what Spark spills are in a folder that only this user can
    enter: those that Spark makes are open to all.
    (`spark.io.encryption.enabled` would do, too, but PySpark then sends each batch over a socket.)
    """
    private = ""
    is_local = settings["spark.master"].startswith("local")
    if is_local and _FOLDER not in settings and _FOLDER_VARIABLE not in os.environ:
        private = tempfile.mkdtemp(prefix="pipeline-spark-")
        settings = {**settings, _FOLDER: private}
    with without_incubator_module():
        gateway = launch_gateway(_conf(without_secrets(settings)))  # type: ignore[no-untyped-call]
    context = SparkContext(conf=_conf(settings), gateway=gateway)
    java: Any = context._jvm
    java.java.lang.System.setProperty(*NO_EXTERNAL_DTD)
    if private:
        # The JVM empties the folder when it ends, and then deletes it.
        java.java.io.File(private).deleteOnExit()
    return context


def _conf(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf
