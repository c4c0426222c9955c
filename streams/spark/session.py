"""Starts the Spark of this process."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streams.spark.environment import without_secrets


def start_session(settings: Mapping[str, str]) -> SparkSession:
    """Return a session with these settings, and no others. Raises whatever Spark raises.

    PySpark puts what starts its JVM on a command line; secrets are set behind that.
    """
    gateway = launch_gateway(_conf(without_secrets(settings)))  # type: ignore[no-untyped-call]
    return SparkSession(SparkContext(conf=_conf(settings), gateway=gateway))


def _conf(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf
