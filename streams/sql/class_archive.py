"""Make the class archive, with which Spark's JVM starts in about half the time (JEP 350).

Run `python -m kafka_pipeline.streams.sql.class_archive` once for each environment; scripts/setup.sh
does it. Spark also starts without the archive. A JVM or a Spark other than the one that made it
ignores it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.spark.environment import (
    CLASS_ARCHIVE,
    DEFAULTS,
    LOCAL,
    driver_options,
    set_environment,
)
from kafka_pipeline.streams.spark.session import start_session
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.columns import table_of
from kafka_pipeline.streams.sql.queries import SparkQueries
from kafka_pipeline.streams.sql.spec import QuerySpec


def make(archive: Path = CLASS_ARCHIVE) -> None:
    """Start Spark, do what TaskManagers do with it, and write the classes that it used.

    Takes some 15 s of CPU time and 160 MB. Raises `UnavailableError` without Java 17 or if the JVM
    wrote no archive, and `OSError` if it cannot be moved there; an earlier archive is kept then.
    """
    part = archive.with_name(f"{archive.name}.{os.getpid()}")
    set_environment([])
    session = start_session(
        {
            **DEFAULTS,
            **LOCAL,
            "spark.master": "local[2]",
            "spark.app.name": "class archive",
            "spark.driver.extraJavaOptions": driver_options(f"ArchiveClassesAtExit={part}"),
        }
    )
    context = session.sparkContext
    gateway: Any = context._gateway
    context.parallelize([0], 1).mapPartitions(list).collect()
    query = SparkQueries(session, UserCode(), Readable()).open(
        QuerySpec("SELECT key, value FROM input")
    )
    table, _ = table_of(Batch([b"a"], [b"1"], [0], None, [0]), 0, query.columns, "string")
    query.run(table)
    session.stop()
    # The JVM writes the archive when it exits, and it exits when its standard input is closed.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    if not part.exists():
        java = f"{os.environ['JAVA_HOME']}/bin/java"
        raise UnavailableError(
            f"{java} wrote no class archive to {part}. For that, it needs 160 MB of disk, and an "
            f"archive of its own classes, which `{java} -Xshare:dump` makes."
        )
    try:
        with part.open("rb") as file:
            os.fsync(file)
        part.rename(archive)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    make()
