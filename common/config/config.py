"""Reads config.yaml once, into a frozen value that is passed to the code that needs it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_pipeline.common.config import config_keys as keys
from kafka_pipeline.common.config.config_keys import (
    CONFIG_KEYS,
    LogFormat,
    LogLevel,
    OnNewPartitions,
)
from kafka_pipeline.common.config.expansion import HostValues, expand
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.kafka_settings import SettingProblem, read_kafka_settings
from kafka_pipeline.common.config.keys import Text, names
from kafka_pipeline.common.config.private_files import kafka_files, referred_files
from kafka_pipeline.common.config.registry_settings import (
    RegistrySettings,
    read_registry_settings,
)
from kafka_pipeline.common.config.secret_settings import SecretSettings, read_secret_settings
from kafka_pipeline.common.config.table_settings import TableSettings, read_table_settings
from kafka_pipeline.common.config.yaml_positions import (
    Items,
    Map,
    Pair,
    Problems,
    Scalar,
    Value,
    describe,
    read_yaml,
    unique_pairs,
)
from kafka_pipeline.common.names import MAX_NAME_LENGTH, name_problem
from kafka_pipeline.common.security.control_key import ControlKey, read_control_key
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.common.topic_names import TopicNames, collision_key
from kafka_pipeline.common.topics import ANY_SIZE_BYTES
from kafka_pipeline.common.zones import tz_variable

CONFIG_FILE, PIPELINE_FILE = "config.yaml", "pipeline.yaml"
_REQUIRED = {key.name for key in CONFIG_KEYS if key.required}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """How a TaskManager starts Spark; `conf` holds Spark's own settings (`spark.…`) as strings."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether everything runs on the TaskManager's host, started by Spark's driver itself."""
        return self.master == "local" or self.master.startswith("local[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The content of config.yaml, checked.

    `server_port` is 1..65535; `tm_number`, `parallelism` (partitions of each topic, tasks of each
    processor) and `replication_factor` are 1 or more. `heartbeat_interval_ms` is 100..60000,
    `commit_interval_ms` 1..60000 and below `transaction_timeout_ms` (1000..900000),
    `max_batch_records` 1..1000000, `max_message_bytes` 1000000..100000000. `num_standby_replicas`
    (0..) is the number of other TaskManagers that keep a copy of each state on disk. With
    `on_new_partitions` "read", processors without state read partitions that are added to a source
    while the job runs. `state_dir` and `savepoint_dir` are absolute. With `log_record_values`,
    reasons and logs include messages that may quote records.

    `metrics_port`, `state_port` and `console_port` are 0..65535; 0 means a free port, `None` off.
    Each daemon serves metrics on `metrics_host` and `metrics_port`, each TaskManager queries of
    state on `state_host` and `state_port`, and the JobManager its console on `console_port`. The
    console also answers to the host names `console_names`. `console_token_file` holds the token for
    its actions; with `None`, it is read-only. With `console_records`, which needs a token, it shows
    records.

    With a `control_key`, the content of `control_key_file`, control records are signed. `modules`
    are the Python modules and packages with user code; nothing else is ever imported for a
    pipeline. `python_path` are absolute folders that are searched for them first. `tables` limits
    what lookup tables may be read from, and `secrets` what references may read, whatever pipelines
    and control records say. Serdes with schemas need a `schema_registry`. `kafka` holds librdkafka
    settings, some with the prefix `consumer.`, `producer.` or `admin.`; it may hold passwords, so
    `repr` omits it.
    """

    server_ip: str
    server_port: int
    job_name: str | None = None
    tm_number: int
    parallelism: int
    replication_factor: int
    source_topic: str
    sink_topic: str
    heartbeat_interval_ms: int = 1000
    commit_interval_ms: int = 100
    idle_after_ms: int = 3000
    max_timestamp_ahead_ms: int = 86_400_000
    transaction_timeout_ms: int = 15000
    max_batch_records: int = 10000
    max_message_bytes: int = ANY_SIZE_BYTES
    num_standby_replicas: int = 0
    on_new_partitions: OnNewPartitions = "read"
    state_dir: Path = Path("state")
    savepoint_dir: Path = Path("savepoints")
    log_format: LogFormat = "console"
    log_level: LogLevel = "info"
    log_record_values: bool = False
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    state_port: int | None = None
    state_host: str = "127.0.0.1"
    console_port: int | None = None
    console_host: str = "127.0.0.1"
    console_names: tuple[str, ...] = ()
    console_token_file: Path | None = None
    console_records: bool = False
    control_key_file: Path | None = None
    control_key: ControlKey | None = None
    modules: tuple[str, ...] = ()
    python_path: tuple[Path, ...] = ()
    spark: SparkConfig = field(default_factory=SparkConfig)
    tables: TableSettings = field(default_factory=TableSettings)
    secrets: SecretSettings = field(default_factory=SecretSettings)
    schema_registry: RegistrySettings | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def bootstrap_servers(self) -> str:
        """The cluster's address for clients: `host:port`, or several separated by commas."""
        given = self.kafka.get("bootstrap.servers")
        if given is not None:
            return str(given)
        host = f"[{self.server_ip}]" if ":" in self.server_ip else self.server_ip
        return f"{host}:{self.server_port}"

    @property
    def topic_names(self) -> TopicNames:
        """The names of the job's topics, groups and transactional ids."""
        return TopicNames(self.job_name, self.source_topic, self.sink_topic)

    @property
    def for_executors(self) -> Config:
        """What Spark's executors get: on a cluster, without `python_path`.

        Its content is shipped; its folders exist on this host only.
        """
        return self if self.spark.is_local else replace(self, python_path=())


def load_config(path: Path, wrong_kafka_setting: SettingProblem | None = None) -> Config:
    """Return the checked contents of a config.yaml, with references replaced by their values.

    `wrong_kafka_setting` returns librdkafka's objection to a setting; see `read_kafka_settings`.
    Raises ConfigError with every problem found.
    """
    problems = Problems(path)
    values = HostValues(os.environ, path.parent)
    written = read_yaml(path, problems)
    root = expand(written, values, problems)
    refuse_other_file(root, CONFIG_FILE, Problems(path))
    pairs = _top_level(root, problems)
    fields = Fields(pairs, problems, at=root, known=names(CONFIG_KEYS))
    config = _read(fields, path.parent, problems, wrong_kafka_setting)
    _check_names(config, fields, problems)
    problems.raise_if_any()
    private = tuple(
        dict.fromkeys([*_private(config, path), *referred_files(written, path.parent.absolute())])
    )
    return replace(config, tables=replace(config.tables, private=private))


def _private(config: Config, path: Path) -> Iterator[Path]:
    """Yield the files and folders that lookup tables must not read, for a config.yaml at `path`."""
    yield path.absolute()
    yield from filter(None, (config.control_key_file, config.console_token_file))
    for kept in (config.state_dir, config.savepoint_dir):
        if not path.absolute().is_relative_to(kept):
            yield kept
    yield from config.secrets.files
    yield from kafka_files(config.kafka)
    if config.schema_registry is not None:
        yield from config.schema_registry.secret_files


def read_python_path(path: Path) -> tuple[Path, ...]:
    """Return the folders of `python_path` in a config.yaml, even if other keys are wrong.

    Variables that other keys refer to need not be set. Raises ConfigError if the file cannot be
    read as YAML, or if its `python_path` is wrong.
    """
    problems = Problems(path)
    root = read_yaml(path, problems)
    problems.raise_if_any()
    key, values = keys.PYTHON_PATH.name, HostValues(os.environ, path.parent)
    pairs = [
        replace(pair, value=expand(pair.value, values, problems))
        for pair in _top_level(root, Problems(path))
        if pair.key == key
    ]
    folders = _python_path(Fields(pairs, problems, at=root, known=(key,)), path.parent)
    problems.raise_if_any()
    return folders


def refuse_other_file(root: Value, wanted: str, problems: Problems) -> None:
    """Raise `ConfigError` if the content of a file is that of another one than the `wanted` one."""
    found = _file_kind(root)
    if found and found != wanted:
        is_swap = {found, wanted} == {CONFIG_FILE, PIPELINE_FILE}
        hint = ": are the two files swapped?" if is_swap else ""
        problems.add(root, f"this is a {found}, and {wanted} is expected here{hint}")
        problems.raise_if_any()


def _file_kind(root: Value) -> str:
    """Return which of a job's files has this content, "" if that is not clear."""
    if isinstance(root, Map):
        has_settings = not _keys(root).isdisjoint(_REQUIRED)
        if "processors" in _keys(root):
            return "" if has_settings else PIPELINE_FILE
        return CONFIG_FILE if has_settings else ""
    items = root.items if isinstance(root, Items) else ()
    if any(len(_keys(item)) == 1 and _keys(item) <= _REQUIRED for item in items):
        return CONFIG_FILE
    return PIPELINE_FILE if any(_keys(item) & {"id", "type"} for item in items) else ""


def _keys(value: Value) -> set[str]:
    return {pair.key for pair in value.pairs} if isinstance(value, Map) else set()


def _top_level(root: Value, problems: Problems) -> Sequence[Pair]:
    """Return the keys of a map, or of a list of maps with one key each (the original's form)."""
    if isinstance(root, Map):
        return root.pairs
    if not isinstance(root, Items):
        problems.add(root, f"must be a map of settings, got {describe(root)}")
        problems.raise_if_any()
        return ()
    pairs: list[Pair] = []
    for item in root.items:
        if isinstance(item, Map) and len(item.pairs) == 1:
            pairs.extend(item.pairs)
        elif not problems.found_at(item):
            got = f"{len(item.pairs)} keys" if isinstance(item, Map) else describe(item)
            problems.add(item, f"each item of the list must be one `key: value`, got {got}")
    return unique_pairs(pairs, problems)


def _read(
    fields: Fields, folder: Path, problems: Problems, wrong_kafka_setting: SettingProblem | None
) -> Config:
    control_key_file = fields.optional_path(keys.CONTROL_KEY_FILE, folder)
    config = Config(
        server_ip=_host(fields, problems),
        server_port=fields.number(keys.SERVER_PORT),
        job_name=fields.text(keys.JOB_NAME) or None,
        tm_number=fields.number(keys.TM_NUMBER),
        parallelism=fields.number(keys.PARALLELISM),
        replication_factor=fields.number(keys.REPLICATION_FACTOR),
        source_topic=fields.text(keys.SOURCE_TOPIC),
        sink_topic=fields.text(keys.SINK_TOPIC),
        heartbeat_interval_ms=fields.number(keys.HEARTBEAT_INTERVAL),
        commit_interval_ms=fields.number(keys.COMMIT_INTERVAL),
        idle_after_ms=fields.number(keys.IDLE_AFTER),
        max_timestamp_ahead_ms=fields.number(keys.MAX_TIMESTAMP_AHEAD),
        transaction_timeout_ms=fields.number(keys.TRANSACTION_TIMEOUT),
        max_batch_records=fields.number(keys.MAX_BATCH_RECORDS),
        max_message_bytes=fields.number(keys.MAX_MESSAGE_BYTES),
        num_standby_replicas=fields.number(keys.NUM_STANDBY_REPLICAS),
        on_new_partitions=fields.choice(keys.ON_NEW_PARTITIONS),
        state_dir=_directory(fields, keys.STATE_DIR, folder),
        savepoint_dir=_directory(fields, keys.SAVEPOINT_DIR, folder),
        log_format=fields.choice(keys.LOG_FORMAT),
        log_level=fields.choice(keys.LOG_LEVEL),
        log_record_values=fields.boolean(keys.LOG_RECORD_VALUES),
        metrics_port=fields.number_or_none(keys.METRICS_PORT),
        metrics_host=_own_address(fields, keys.METRICS_HOST, problems),
        state_port=fields.number_or_none(keys.STATE_PORT),
        state_host=_own_address(fields, keys.STATE_HOST, problems, ', such as "127.0.0.1"'),
        console_port=fields.number_or_none(keys.CONSOLE_PORT),
        console_host=_own_address(fields, keys.CONSOLE_HOST, problems, ', such as "127.0.0.1"'),
        console_names=_console_names(fields, problems),
        console_token_file=fields.optional_path(keys.CONSOLE_TOKEN_FILE, folder),
        console_records=fields.boolean(keys.CONSOLE_RECORDS),
        control_key_file=control_key_file,
        control_key=_control_key(control_key_file, fields, problems),
        modules=_modules(fields, problems),
        python_path=_python_path(fields, folder),
        spark=_spark(fields, problems),
        tables=read_table_settings(fields, folder, problems),
        secrets=read_secret_settings(fields, folder, problems),
        schema_registry=read_registry_settings(fields, folder, problems),
        kafka=read_kafka_settings(fields.pairs(keys.KAFKA), problems, wrong_kafka_setting),
    )
    if config.commit_interval_ms >= config.transaction_timeout_ms:
        problems.add(
            fields.at("commit_interval_ms"),
            f"commit_interval_ms ({config.commit_interval_ms}) must be below "
            f"transaction_timeout_ms ({config.transaction_timeout_ms}): "
            "Kafka aborts a transaction that is open for longer",
        )
    if config.console_records and config.console_token_file is None:
        problems.add(
            fields.at("console_records"),
            "console_records needs console_token_file: only those who have a token may see records",
        )
    if config.num_standby_replicas >= config.tm_number > 0:
        problems.add(
            fields.at("num_standby_replicas"),
            f"num_standby_replicas ({config.num_standby_replicas}) must be below tm_number "
            f"({config.tm_number}): each copy lies on another TaskManager than the task",
        )
    return config


def _host(fields: Fields, problems: Problems) -> str:
    host = fields.text(keys.SERVER_IP)
    if re.fullmatch(r"[^:]*:[0-9]+", host):
        problems.add(
            fields.at("server_ip"), f'server_ip "{host}" has a port: it belongs in server_port'
        )
    elif re.search(r"[\s,/]", host):
        problems.add(
            fields.at("server_ip"),
            f'server_ip "{host}" is not one host name or address: '
            "several brokers go in kafka: {bootstrap.servers: …}",
        )
    return host


def _own_address(fields: Fields, key: Text, problems: Problems, hint: str = "") -> str:
    """Return an address of this host to listen on; `hint` ends the message for a wrong one."""
    host = fields.text(key)
    if host and not re.fullmatch(key.pattern, host):
        problems.add(
            fields.at(key.name), f'{key.name} "{host}" is not one host name or address{hint}'
        )
    return host


def _console_names(fields: Fields, problems: Problems) -> tuple[str, ...]:
    found = fields.texts(keys.CONSOLE_NAMES)
    for name in found:
        if not re.fullmatch(keys.CONSOLE_NAMES.pattern, name):
            problems.add(
                fields.at("console_names"),
                f'console_names: "{name}" is not a host name without a port, such as "example.org"',
            )
    return found


def _control_key(file: Path | None, fields: Fields, problems: Problems) -> ControlKey | None:
    if file is None:
        return None
    try:
        return read_control_key(file)
    except (OSError, ValueError) as error:
        name = keys.CONTROL_KEY_FILE.name
        why = error.strerror if isinstance(error, OSError) else error
        problems.add(fields.at(name), f"{name}: no key can be read from {file}: {why}")
        return None


def _directory(fields: Fields, key: Text, folder: Path) -> Path:
    return fields.path(key.name, fields.text(key), folder, is_fixed=True)


def _python_path(fields: Fields, folder: Path) -> tuple[Path, ...]:
    texts = fields.texts(keys.PYTHON_PATH)
    return tuple(fields.path(keys.PYTHON_PATH.name, text, folder) for text in texts)


def _modules(fields: Fields, problems: Problems) -> tuple[str, ...]:
    modules = fields.texts(keys.MODULES)
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            problems.add(
                fields.at("modules"),
                f'modules: "{module}" is not the name of a Python module, such as package.module',
            )
    return modules


def _spark(fields: Fields, problems: Problems) -> SparkConfig:
    spark = fields.submap(keys.SPARK)
    conf: dict[str, str] = {}
    for pair in spark.pairs(keys.CONF):
        value = pair.value
        if not pair.key.startswith("spark."):
            problems.add(pair.at, f'Spark setting "{pair.key}" must start with "spark."')
        elif pair.key == "spark.master":
            problems.add(pair.at, 'write "spark.master" as spark: {master: …}')
        elif not isinstance(value, Scalar) or value.value is None:
            problems.add(
                value, f'Spark setting "{pair.key}" must be one value, got {describe(value)}'
            )
        elif isinstance(value.value, bool):
            conf[pair.key] = str(value.value).lower()
        else:
            conf[pair.key] = value.value if isinstance(value.value, str) else value.text
            if wrong := _zone_problem(pair.key, conf[pair.key]):
                problems.add(value, wrong)
    return SparkConfig(master=spark.text(keys.MASTER), conf=conf)


def _zone_problem(name: str, value: str) -> str:
    """Return why a Spark setting cannot set Python's time zone; "" if it can."""
    if name == "spark.executorEnv.TZ":
        return f"leave {name} out: Python has the time zone of spark.sql.session.timeZone"
    if name == "spark.sql.session.timeZone":
        try:
            tz_variable(value)
        except ValueError as error:
            return f"{name}: {error}"
    return ""


def _check_names(config: Config, fields: Fields, problems: Problems) -> None:
    topic_names = config.topic_names
    topics = {"source_topic": config.source_topic, "sink_topic": config.sink_topic}
    for key, name in {"job_name": config.job_name, **topics}.items():
        wrong = name_problem(name) if name else None
        if wrong:
            problems.add(fields.at(key), f'{key} "{name}" {wrong}')
    longest = len(topic_names.heartbeat_events)
    if longest > MAX_NAME_LENGTH and not problems.found_at(fields.at("job_name")):
        problems.add(
            fields.at("job_name"),
            f"job_name is {counted(longest - MAX_NAME_LENGTH, 'character')} too long: with it, the "
            'topic "heartbeat_events_topic" gets a name that Kafka refuses',
        )
    for key, name in topics.items():
        owner = topic_names.reserved_for(name)
        if owner:
            problems.add(
                fields.at(key), f'{key} "{name}" is the name of {owner}: choose another one'
            )
    _check_source_is_not_sink(config, fields, problems)


def _check_source_is_not_sink(config: Config, fields: Fields, problems: Problems) -> None:
    source, sink = config.source_topic, config.sink_topic
    if not sink or collision_key(source) != collision_key(sink):
        return
    if source == sink:
        problems.add(
            fields.at("sink_topic"),
            f'sink_topic is the source_topic "{source}": the pipeline would read its own results',
        )
    else:
        problems.add(
            fields.at("sink_topic"),
            f'sink_topic "{sink}" and source_topic "{source}" differ only in "." and "_", '
            "which Kafka refuses",
        )
