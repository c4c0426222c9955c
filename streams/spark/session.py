"""Starts the Spark of this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import ChunkedStream, Serializer
from pyspark.sql import SparkSession
from pyspark.util import local_connect_and_auth

from kafka_pipeline.common.monitoring.long_wait import LongWait
from kafka_pipeline.streams.spark.environment import (
    NO_EXTERNAL_DTD,
    corrected_launcher,
    without_secrets,
)
from kafka_pipeline.streams.spark.jvm_names import keep_names
from kafka_pipeline.streams.spark.private_folder import private_folder
from kafka_pipeline.streams.spark.zone import enter_zone, zoned

_FOLDER, _FOLDER_VARIABLE = "spark.local.dir", "SPARK_LOCAL_DIRS"
_HOST, _HOST_VARIABLE = "spark.driver.host", "SPARK_LOCAL_HOSTNAME"
_CHUNK_BYTES = 65536
_LOOK_S = 1.0


def start_session(settings: Mapping[str, str], wait: LongWait | None = None) -> SparkSession:
    """Return a session with these settings, and no others. Raises whatever Spark raises.

    `wait` logs that a start takes long.

    This process and Spark's workers have the session's time zone from then on, UTC by default.
    Raises `UnavailableError` if the host does not have it.

    Spark starts in its own thread. Ctrl-C in the middle of PySpark's code would leave a JVM running
    forever: it does not find the folder where it must report that it is up, and does not end. In
    the main thread, PySpark would also install its own SIGINT handler.
    """
    settings = zoned(settings)
    enter_zone(settings)
    with ThreadPoolExecutor(1, "spark-start") as starter:
        starting = starter.submit(_start, settings)
        while wait is not None and not wait_for([starting], _LOOK_S).done:
            wait.look(time.monotonic(), waits=True)
        context = starting.result()
    return SparkSession(context)


def _start(settings: Mapping[str, str]) -> SparkContext:
    """Start the JVM without secrets, which its command line would show; set them afterwards.

    With a local master, what Spark spills is in a folder that only this user can enter: those that
    Spark makes are open to all. It is encrypted, too, and PySpark sends batches over a socket then.
    Without `spark.io.encryption.enabled`, it would write each of them to a file.

    A process has one JVM: PySpark keeps to the first one, so a second would serve nobody.
    """
    private = ""
    is_local = settings["spark.master"].startswith("local")
    if is_local and _FOLDER not in settings and _FOLDER_VARIABLE not in os.environ:
        private = str(private_folder())
        settings = {**settings, _FOLDER: private}
    gateway = SparkContext._gateway
    if gateway is None:  # else the JVM of a session that has stopped still runs
        with corrected_launcher(), _host_name(settings, is_local):
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                _conf(without_secrets(settings))
            )
        keep_names(gateway)
        _outlive_terminal(gateway)
    context = _Context(conf=_conf(settings), gateway=gateway)
    java: Any = context._jvm
    java.java.lang.System.setProperty(*NO_EXTERNAL_DTD)
    if private:
        # The JVM empties the folder when it ends, and then deletes it.
        java.java.io.File(private).deleteOnExit()
    return context


def _outlive_terminal(gateway: Any) -> None:
    """Have the JVM ignore SIGHUP, which it gets too when a terminal is closed.

    This process needs it to end in order. The JVM ends when its standard input does.
    """
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("HUP"), signals.SignalHandler.SIG_IGN)


@contextmanager
def _host_name(settings: Mapping[str, str], is_local: bool) -> Iterator[None]:
    """Start Spark's JVM on a host whose own name has no address, as in many containers.

    Spark looks that name up before it reads any setting, and does not start without an answer.
    """
    if not is_local or _HOST not in settings or _HOST_VARIABLE in os.environ:
        yield
        return
    os.environ[_HOST_VARIABLE] = settings[_HOST]
    try:
        yield
    finally:
        del os.environ[_HOST_VARIABLE]


class _Context(SparkContext):
    """Closes the sockets over which it sends data: PySpark leaves that to the garbage collector."""

    def _serialize_to_jvm(
        self,
        data: Iterable[Any],
        serializer: Serializer,
        reader_func: Callable[[str], Any],
        server_func: Callable[[], Any],
    ) -> Any:
        if not self._encryption_enabled:
            return super()._serialize_to_jvm(data, serializer, reader_func, server_func)
        server = server_func()
        file, connected = local_connect_and_auth(server.connInfo(), server.secret())
        with connected:
            sent: Any = ChunkedStream(file, _CHUNK_BYTES)  # type: ignore[no-untyped-call]
            serializer.dump_stream(data, sent)  # type: ignore[no-untyped-call]
            sent.close()
        return server.getResult()


def _conf(settings: Mapping[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    return conf
