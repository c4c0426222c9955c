"""The job of the benchmark in Flink SQL, exactly once, with its defaults for nearly all else.

It runs in the environment that `flink_sql.py` creates, without this project. Arguments: job (only
`minute-counts`), bootstrap servers, consumer group, source, sink, parallelism, URI of the Kafka
connector. It ends on SIGTERM.
"""

from __future__ import annotations

import sys

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

SETTINGS = {
    "table.local-time-zone": "UTC",
    # A partition without records does not hold back the others.
    "table.exec.source.idle-timeout": "5 s",
    # Results are visible to others from the next checkpoint on.
    "execution.checkpointing.interval": "1 s",
}
READINGS = """
CREATE TABLE readings (
  `user` STRING, place STRING, n INT, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  WATERMARK FOR `at` AS `at`
) WITH (
  'connector' = 'kafka', 'topic' = '{source}', 'properties.bootstrap.servers' = '{servers}',
  'properties.group.id' = '{group}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
)
"""
COUNTS = """
CREATE TABLE counts (place STRING, `minute` BIGINT, records BIGINT) WITH (
  'connector' = 'kafka', 'topic' = '{sink}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'raw', 'key.fields' = 'place',
  'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{group}',
  'properties.transaction.timeout.ms' = '600000'
)
"""
MINUTE_COUNTS = """
INSERT INTO counts
SELECT place, 1000 * UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')), COUNT(*)
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))
GROUP BY place, window_start, window_end
"""


def main() -> None:
    """Run the job until it is stopped."""
    job, servers, group, source, sink, parallelism, connector = sys.argv[1:]
    if job != "minute-counts":
        sys.exit(f"no such job: {job}")
    configuration = Configuration()
    settings = {**SETTINGS, "parallelism.default": parallelism, "pipeline.jars": connector}
    for name, value in settings.items():
        configuration.set_string(name, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance()
        .in_streaming_mode()
        .with_configuration(configuration)
        .build()
    )
    for statement in (READINGS, COUNTS):
        tables.execute_sql(statement.format(servers=servers, group=group, source=source, sink=sink))
    tables.execute_sql(MINUTE_COUNTS).wait()


if __name__ == "__main__":
    main()
