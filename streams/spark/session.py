"""Starts the Spark of this process."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streams.spark.environment import without_secrets


def start_session(settings: Mapping[str, str]) -> SparkSession:
    """Return a session with these settings, and no others. Raises whatever Spark raises.

    The start itself is in a thread of its own. Ctrl-C in the middle of PySpark's code would leave
    a JVM forever: it does not find the folder where it is to say that it is up, and does not end.
    And in the main thread, PySpark gives SIGINT a handler of its own.
    """
    with ThreadPoolExecutor(1, "spark-start") as starter:
        context = starter.submit(_start, settings).result()
    return SparkSession(context)


def _start(settings: Mapping[str, str]) -> SparkContext:
    """PySpark puts what starts its JVM on a command line; secrets are set behind that."""
    gateway = launch_gateway(_conf(without_secrets(settings)))  # type: ignore[no-untyped-call]
    return SparkContext(conf=_conf(settings), gateway=gateway)


def _conf(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf
