"""A query of Nexmark in Flink SQL: exactly once, with RocksDB and a checkpoint each second.

It runs in the environment that `flink_sql.py` creates, without this project. Arguments: the query
as text, the columns of its key with commas between them, whether to use mini-batches, bootstrap
servers, consumer group, sink, parallelism, folder of checkpoints, URI of the Kafka connector. It
ends on SIGTERM.
"""

from __future__ import annotations

import sys

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]
from pyflink.table.types import DataType, DecimalType  # type: ignore[import-not-found]

SETTINGS = {
    "table.local-time-zone": "UTC",
    # A partition without records does not hold back the others.
    "table.exec.source.idle-timeout": "5 s",
    "execution.checkpointing.interval": "1 s",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.storage": "filesystem",
}
MINI_BATCH = {
    # The settings of Nexmark's own runs.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}
SOURCES = {
    "person": (
        "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, "
        "state STRING, `dateTime` BIGINT, extra STRING"
    ),
    "auction": (
        "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
        "`dateTime` BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING"
    ),
    "bid": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
        "`dateTime` BIGINT, extra STRING"
    ),
}
SOURCE = """
CREATE TABLE {topic} (
  {columns}, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', read_at AS PROCTIME(),
  WATERMARK FOR `at` AS `at` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'properties.group.id' = '{group}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
)
"""
SINK = """
CREATE TABLE results ({columns}) WITH (
  'topic' = '{sink}', 'properties.bootstrap.servers' = '{servers}',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{group}',
  'properties.transaction.timeout.ms' = '600000', {format}
)
"""
ADDED = "'connector' = 'kafka', 'format' = 'json', 'json.encode.decimal-as-plain-number' = 'true'"
KEYED = (
    "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', "
    "'value.json.encode.decimal-as-plain-number' = 'true'"
)


def in_sql(kind: DataType) -> str:
    """Return a type in SQL, without NOT NULL; `str` leaves out the digits of a decimal."""
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return str(kind).removesuffix(" NOT NULL")


def main() -> None:
    """Run the query until it is stopped."""
    query, key, is_mini_batch, servers, group, sink, parallelism, checkpoints, jar = sys.argv[1:]
    configuration = Configuration()
    settings = {
        **SETTINGS,
        **(MINI_BATCH if is_mini_batch == "true" else {}),
        "execution.checkpointing.dir": checkpoints,
        "parallelism.default": parallelism,
        "pipeline.jars": jar,
    }
    for name, value in settings.items():
        configuration.set_string(name, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance()
        .in_streaming_mode()
        .with_configuration(configuration)
        .build()
    )
    for topic, columns in SOURCES.items():
        tables.execute_sql(
            SOURCE.format(topic=topic, columns=columns, servers=servers, group=group)
        )
    schema = tables.sql_query(query).get_schema()
    keys = key.split(",") if key else []
    columns = ", ".join(
        f"`{name}` {in_sql(schema.get_field_data_type(name))}{' NOT NULL' if name in keys else ''}"
        for name in schema.get_field_names()
    )
    if keys:
        columns += f", PRIMARY KEY ({', '.join(f'`{name}`' for name in keys)}) NOT ENFORCED"
    tables.execute_sql(
        SINK.format(
            columns=columns,
            sink=sink,
            servers=servers,
            group=group,
            format=KEYED if keys else ADDED,
        )
    )
    tables.execute_sql(f"INSERT INTO results {query}").wait()


if __name__ == "__main__":
    main()
