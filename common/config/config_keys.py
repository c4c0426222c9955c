"""The keys of config.yaml, with their types, ranges and defaults."""

from __future__ import annotations

from typing import Literal, get_args

from kafka_pipeline.common.config.expansion import REFERENCE_PATTERN
from kafka_pipeline.common.config.kafka_settings import KAFKA_SCHEMA
from kafka_pipeline.common.config.keys import (
    FILLED,
    SCHEMA_VERSION,
    Choice,
    ConfigKey,
    Flag,
    Free,
    Number,
    Schema,
    Section,
    Text,
    Texts,
    map_schema,
)
from kafka_pipeline.common.config.registry_settings import SCHEMA_REGISTRY
from kafka_pipeline.common.config.secret_settings import SECRETS
from kafka_pipeline.common.config.table_settings import TABLES
from kafka_pipeline.common.names import NAME_PATTERN
from kafka_pipeline.common.topics import ANY_SIZE_BYTES

LogFormat = Literal["console", "json"]
OnNewPartitions = Literal["read", "report"]
LogLevel = Literal["debug", "info", "warning", "error"]

SERVER_IP = Text(
    name="server_ip",
    doc="host name or address of a Kafka broker",
    about="a broker's host name or address",
    required=True,
    pattern=r"^(?![^:]*:[0-9]+$)[^\s,/]+$",
)
SERVER_PORT = Number(
    name="server_port",
    doc="the broker's port",
    about="usually 9092",
    low=1,
    high=65535,
    required=True,
)
JOB_NAME = Text(
    name="job_name",
    doc="the job's name: it is at the end of the names of the job's own topics and groups, and at "
    "the beginning of its transactional ids",
    default="",
    pattern=NAME_PATTERN,
)
TM_NUMBER = Number(
    name="tm_number",
    doc="how many TaskManagers the JobManager waits for; their ids are 0 to `tm_number` - 1; "
    "`pipeline grow` allows more while the job runs",
    about="how many TaskManagers to wait for",
    low=1,
    high=10_000,
    required=True,
)
PARALLELISM = Number(
    name="parallelism",
    doc="number of tasks of each processor, and of partitions of each topic that the engine "
    "creates",
    about="partitions of every topic",
    low=1,
    high=100_000,
    required=True,
)
REPLICATION_FACTOR = Number(
    name="replication_factor",
    doc="replicas of each topic that the engine creates; 3 on a cluster of three brokers or more",
    about="copies of every topic",
    low=1,
    high=32767,
    required=True,
)
SOURCE_TOPIC = Text(
    name="source_topic",
    doc="the topic to read; created if it is missing",
    about="the topic to read",
    required=True,
    pattern=NAME_PATTERN,
)
SINK_TOPIC = Text(
    name="sink_topic",
    doc="the topic to write; created if it is missing",
    about="the topic to write",
    required=True,
    pattern=NAME_PATTERN,
)
HEARTBEAT_INTERVAL = Number(
    name="heartbeat_interval_ms",
    doc="time between heartbeats; after three missed heartbeats, a TaskManager counts as down",
    low=100,
    high=60_000,
    default=1000,
)
COMMIT_INTERVAL = Number(
    name="commit_interval_ms",
    doc="how long a transaction collects records, unless its commit waits for others; "
    "below `transaction_timeout_ms`",
    low=1,
    high=60_000,
    default=100,
)
TRANSACTION_TIMEOUT = Number(
    name="transaction_timeout_ms",
    doc="how long a transaction may be open; Kafka then aborts it",
    low=1000,
    high=900_000,
    default=15_000,
)
IDLE_AFTER = Number(
    name="idle_after_ms",
    doc="how long a partition that was read to its end still holds windows open downstream; older "
    "records that arrive after that are late",
    low=0,
    high=86_400_000,
    default=3000,
)
MAX_TIMESTAMP_AHEAD = Number(
    name="max_timestamp_ahead_ms",
    doc="how far the timestamp of a record may be ahead of the clock; a record with a later "
    "timestamp is rejected, as it would advance event time permanently",
    low=0,
    high=3_155_760_000_000,
    default=86_400_000,
)
MAX_BATCH_RECORDS = Number(
    name="max_batch_records",
    doc="the largest number of records in one fetch of a PipelineThread",
    low=1,
    high=1_000_000,
    default=10_000,
)
MAX_MESSAGE_BYTES = Number(
    name="max_message_bytes",
    doc="the `max.message.bytes` of the topics that the engine creates for itself; set it lower if "
    "your Kafka has a lower limit, as managed services do",
    low=1_000_000,
    high=ANY_SIZE_BYTES,
    default=ANY_SIZE_BYTES,
)
NUM_STANDBY_REPLICAS = Number(
    name="num_standby_replicas",
    doc="how many other TaskManagers keep a copy of each state on disk; below `tm_number`",
    low=0,
    default=0,
)
ON_NEW_PARTITIONS: Choice[OnNewPartitions] = Choice(
    name="on_new_partitions",
    doc="whether processors without state read partitions that are added to a source while the job "
    "runs, from their oldest record on, or `pipeline status` only reports them",
    choices=get_args(OnNewPartitions),
    default="read",
)
STATE_DIR = Text(
    name="state_dir",
    doc="folder of the local stores, relative to the folder of config.yaml",
    default="state",
)
SAVEPOINT_DIR = Text(
    name="savepoint_dir",
    doc="folder of the savepoints that commands such as `pipeline rescale` make automatically, "
    "relative to the folder of config.yaml",
    default="savepoints",
)
LOG_FORMAT: Choice[LogFormat] = Choice(
    name="log_format",
    doc="whether log lines are for people or for programs",
    choices=get_args(LogFormat),
    default="console",
)
LOG_LEVEL: Choice[LogLevel] = Choice(
    name="log_level",
    doc="the lowest level that is logged",
    choices=get_args(LogLevel),
    default="info",
)
LOG_RECORD_VALUES = Flag(
    name="log_record_values",
    doc="whether logs, reasons and headers of dead letters contain all exception messages; by "
    "default, messages that may quote records are left out",
    default=False,
)
METRICS_PORT = Number(
    name="metrics_port",
    doc="port on which each daemon serves its metrics and its health; 0 takes a free port, which "
    "is logged; without it, they are not served",
    low=0,
    high=65535,
)
METRICS_HOST = Text(
    name="metrics_host",
    doc="the address that `metrics_port` listens on; `0.0.0.0` means all addresses of the host",
    default="127.0.0.1",
    pattern=r"^\S+$",
)
STATE_PORT = Number(
    name="state_port",
    doc="port on which each TaskManager answers queries of its tasks' state; 0 takes a free port, "
    "which `pipeline state` finds; without it, queries are not answered",
    low=0,
    high=65535,
)
STATE_HOST = Text(
    name="state_host",
    doc="the address that `state_port` listens on; anyone who can reach it can read all keys and "
    "values",
    default="127.0.0.1",
    pattern=r"^[^\s/]+$",
)
CONSOLE_PORT = Number(
    name="console_port",
    doc="port of the JobManager's console; 0 takes a free port, which is logged; without it, there "
    "is no console",
    low=0,
    high=65535,
)
CONSOLE_HOST = Text(
    name="console_host",
    doc="the address that the console listens on; anyone who can reach it can read everything in "
    "the console",
    default="127.0.0.1",
    pattern=r"^[^\s/]+$",
)
CONSOLE_NAMES = Texts(
    name="console_names",
    doc="host names by which browsers may call the console, in addition to `console_host` and "
    "`localhost`",
    pattern=r"^[^\s/:]+$",
)
CONSOLE_TOKEN_FILE = Text(
    name="console_token_file",
    doc="file whose first line is the token for actions in the console, 16 characters or more, "
    "relative to the folder of config.yaml; without it, the console is read-only",
)
CONSOLE_RECORDS = Flag(
    name="console_records",
    doc="whether the console shows records and state to users with the token",
    default=False,
)
CONTROL_KEY_FILE = Text(
    name="control_key_file",
    doc="file with the key that signs control messages, the same for all daemons and tools of the "
    "job, relative to the folder of config.yaml: 32 characters or more on the first line, and "
    "optionally a former key that is still accepted on the second; without it, nothing is signed",
)
MODULES = Texts(
    name="modules",
    doc="Python modules and packages with your code; nothing else is ever imported",
    pattern=r"^[^\s.:/-]+(\.[^\s.:/-]+)*$",
)
PYTHON_PATH = Texts(
    name="python_path",
    doc="folders that are searched for `modules` first, relative to the folder of config.yaml",
)
MASTER = Text(
    name="master", doc="where Spark runs its tasks, as the URL of a master", default="local[*]"
)
CONF = Free(
    name="conf",
    doc="Spark's own settings, such as `spark.executor.memory: 2g`",
    of={
        "type": "object",
        "propertyNames": {"pattern": r"^spark\.", "not": {"const": "spark.master"}},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    },
    says="map",
)
SPARK = Section(
    name="spark", doc="settings with which a TaskManager starts Spark", keys=(MASTER, CONF)
)
KAFKA = Free(
    name="kafka",
    doc="settings of librdkafka for all clients, or for one kind of them with `consumer.`, "
    "`producer.` or `admin.` in front",
    of=KAFKA_SCHEMA,
    says="map",
)
CONFIG_KEYS: tuple[ConfigKey, ...] = (
    SERVER_IP,
    SERVER_PORT,
    TM_NUMBER,
    PARALLELISM,
    REPLICATION_FACTOR,
    SOURCE_TOPIC,
    SINK_TOPIC,
    JOB_NAME,
    HEARTBEAT_INTERVAL,
    COMMIT_INTERVAL,
    IDLE_AFTER,
    MAX_TIMESTAMP_AHEAD,
    TRANSACTION_TIMEOUT,
    MAX_BATCH_RECORDS,
    MAX_MESSAGE_BYTES,
    NUM_STANDBY_REPLICAS,
    ON_NEW_PARTITIONS,
    STATE_DIR,
    SAVEPOINT_DIR,
    LOG_FORMAT,
    LOG_LEVEL,
    LOG_RECORD_VALUES,
    METRICS_PORT,
    METRICS_HOST,
    STATE_PORT,
    STATE_HOST,
    CONSOLE_PORT,
    CONSOLE_HOST,
    CONSOLE_NAMES,
    CONSOLE_TOKEN_FILE,
    CONSOLE_RECORDS,
    CONTROL_KEY_FILE,
    MODULES,
    PYTHON_PATH,
    SPARK,
    TABLES,
    SECRETS,
    SCHEMA_REGISTRY,
    KAFKA,
)
"""All keys of config.yaml."""


_REFERENCE: Schema = {"type": "string", "pattern": REFERENCE_PATTERN}


def config_schema() -> Schema:
    """Return the schema: a map, or a list of maps with one key each, as in the original.

    It does not expand variables, and does not compare keys with each other.
    """
    as_map = map_schema(CONFIG_KEYS)
    keys = {name: _expandable(schema) for name, schema in as_map["properties"].items()}
    return {
        "$schema": SCHEMA_VERSION,
        "title": "config.yaml",
        "definitions": {"keys": keys},
        "if": {"type": "array"},
        "then": {
            "items": {**as_map, "properties": _references(keys), "minProperties": 1}
            | {"maxProperties": 1, "required": []},
            "allOf": [{"contains": {"required": [name]}} for name in as_map["required"]],
        },
        "else": {**as_map, "properties": _references(keys)},
    }


def _references(keys: Schema) -> Schema:
    return {name: {"$ref": f"#/definitions/keys/{name}"} for name in keys}


def _expandable(schema: Schema) -> Schema:
    """Return a schema that also accepts strings with `${VAR}` for every value."""
    if "properties" in schema:
        inside = {name: _expandable(each) for name, each in schema["properties"].items()}
        return {**schema, "properties": inside}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_expandable(each) for each in schema["anyOf"]]}
    if "items" in schema:
        return {**schema, "items": _expandable(schema["items"])}
    if schema.get("type") == "object" or schema.get("pattern") == FILLED:
        return schema
    shown: Schema = {name: schema[name] for name in ("description", "default") if name in schema}
    rest = {name: each for name, each in schema.items() if name not in shown}
    return {**shown, "anyOf": [rest, _REFERENCE]}
