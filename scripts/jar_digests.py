"""Writes the lists of digests of jars: `python -m scripts.jar_digests`.

Ivy fetches the jars of each ivy.xml again, and the lists then have what arrived. Compare them with
git: a jar of a version that was there before must have the digest that it had before.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.peers.flink_sql import JARS as FLINK
from benchmarks.peers.streams_java import JARS as KAFKA_STREAMS
from kafka_pipeline.admin.broker.jars import BROKER, digests_of, retrieve, write_digests
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.process.java import find_java
from tests.apicurio.registry import JARS as APICURIO
from tests.change_data.connector import JARS as DEBEZIUM
from tests.change_data.connector import MARIADB_JARS, MYSQL_JARS
from tests.kafka_versions.jars import JARS as OTHER_KAFKAS
from tests.mysql_server.server import JARS as MYSQL
from tests.object_store.server import JARS as S3PROXY
from tests.rest_catalog.server import JARS as ICEBERG
from tests.yarn.cluster import JARS as HADOOP

_COMMENT = "The jars that ivy.xml asks for. ./scripts/lock.sh writes this list."


def main() -> None:
    """Fetch all sets of jars, and write their lists. Takes a minute or two and a network."""
    java = find_java()
    ours = (BROKER, KAFKA_STREAMS, FLINK, APICURIO, HADOOP, S3PROXY, ICEBERG)
    changes = (DEBEZIUM, MYSQL_JARS, MARIADB_JARS, MYSQL)
    sets = (*ours, *changes, *OTHER_KAFKAS.values())
    for jar_set in sets:
        with tempfile.TemporaryDirectory() as scratch:
            jars = Path(scratch, "jars")
            jars.mkdir()
            retrieve(jar_set, java, Path(scratch, "ivy"), jars)
            write_digests(jar_set.digests, digests_of(jars), _COMMENT)
        print(jar_set.digests)


if __name__ == "__main__":
    run_command(main)()
