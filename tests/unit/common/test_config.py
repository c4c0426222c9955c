"""How config.yaml is read, and the error for each mistake in it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.config.config import Config, SparkConfig, load_config
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.errors import ConfigError
from tests.unit.common.config_texts import BASE, REQUIRED, load, problems_in, with_value

ALIASES = b"a0: &a0 [x, x]\n" + b"".join(
    b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 20)
)
"""Some 400 bytes that would be a million values."""


def test_required_keys_are_enough_and_the_rest_has_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(BASE)

    assert load_config(path) == Config(
        server_ip="127.0.0.1",
        server_port=9092,
        job_name=None,
        tm_number=2,
        parallelism=2,
        replication_factor=1,
        source_topic="source_topic",
        sink_topic="sink_topic",
        heartbeat_interval_ms=1000,
        commit_interval_ms=100,
        transaction_timeout_ms=15000,
        max_batch_records=10000,
        state_dir=tmp_path.resolve() / "state",
        savepoint_dir=tmp_path.resolve() / "savepoints",
        log_format="console",
        log_level="info",
        spark=SparkConfig(master="local[*]", conf={}),
        tables=TableSettings(folder=tmp_path.resolve()),
        secrets=SecretSettings(folder=tmp_path.resolve()),
    )


def test_every_optional_key_is_read() -> None:
    config = load(
        BASE
        + """
job_name: job_1
heartbeat_interval_ms: 100
commit_interval_ms: 60000
transaction_timeout_ms: 900000
max_batch_records: 1
max_message_bytes: 8388608
state_dir: /var/lib/x
log_format: json
log_level: debug
spark: {master: "spark://h:7077", conf: {spark.ui.enabled: no, spark.x: 1_0, spark.y: 2g}}
kafka: {client.id: c, consumer.fetch.min.bytes: 5, producer.linger.ms: 0.5, log.queue: true}
"""
    )
    assert config.job_name == "job_1"
    assert (config.heartbeat_interval_ms, config.commit_interval_ms) == (100, 60000)
    assert (config.transaction_timeout_ms, config.max_batch_records) == (900000, 1)
    assert config.max_message_bytes == 8_388_608
    assert config.state_dir == Path("/var/lib/x")
    assert (config.log_format, config.log_level) == ("json", "debug")
    assert config.spark == SparkConfig(
        master="spark://h:7077",
        conf={"spark.ui.enabled": "false", "spark.x": "1_0", "spark.y": "2g"},
    )
    assert config.kafka == {
        "client.id": "c",
        "consumer.fetch.min.bytes": "5",
        "producer.linger.ms": "0.5",
        "log.queue": "true",
    }


def test_the_home_folder_is_known_in_state_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert load(BASE + "state_dir: ~/state").state_dir == Path("/home/me/state")


@given(st.randoms(use_true_random=False))
def test_a_list_of_one_key_maps_in_any_order_means_the_same_as_a_map(rng: random.Random) -> None:
    items = [{key: value} for key, value in REQUIRED.items()]
    rng.shuffle(items)
    as_list, as_map = load(yaml.safe_dump(items)), load(BASE)
    assert as_list.bootstrap_servers == as_map.bootstrap_servers
    for key in REQUIRED:
        assert getattr(as_list, key) == getattr(as_map, key)


def test_passwords_do_not_show_in_repr() -> None:
    config = load(
        BASE + "kafka: {sasl.password: hunter2}\nspark: {conf: {spark.ssl.keyPassword: hunter2}}"
    )
    assert config.kafka == {"sasl.password": "hunter2"}
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        (BASE, "127.0.0.1:9092"),
        (with_value("server_ip", '"::1"'), "[::1]:9092"),
        (BASE + 'kafka: {bootstrap.servers: "a:1,b:2"}', "a:1,b:2"),
    ],
)
def test_bootstrap_servers_come_from_kafka_settings_or_from_ip_and_port(
    text: str, servers: str
) -> None:
    assert load(text).bootstrap_servers == servers


# --- files that cannot be read at all ---


def test_a_missing_file_is_reported_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}:1:1: there is no such file"


def test_a_folder_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert str(caught.value) == f"{tmp_path}:1:1: cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "1:1: is empty"),
        (b"# only a comment\n", "1:1: is empty"),
        (b"a: \xff", "1:1: is not UTF-8 (byte 4): save it as UTF-8"),
        (b"a: 1\nb: \x00", "2:4: has the character U+0000, not allowed in YAML"),
        (
            b"a: 1\n b: 2",
            "2:3: is not valid YAML: mapping values are not allowed here",
        ),
        (
            b'a: "x',
            "1:6: is not valid YAML: while scanning a quoted scalar, "
            "found unexpected end of stream",
        ),
        (
            b"a: 1\n---\nb: 1",
            "2:1: is not valid YAML: expected a single document in the stream, "
            "but found another document",
        ),
        (b"[" * 5000, "1:1: is nested too deeply"),
        (b"a: " + b"[" * 400 + b"]" * 400, "1:1: is nested too deeply"),
        (b'a: "\\UFFFFFFFF"', "1:1: has an escape (\\U…) that is not a character"),
        (b'a: "\\U00110000"', "1:1: has an escape (\\U…) that is not a character"),
        (b'a: "x\\ud800"', "1:4: has an escape (\\u…) that is not a character"),
        (ALIASES, "1:1: has aliases (*) that expand to more than 100,000 values"),
        (b"hello", '1:1: must be a map of settings, got the text "hello"'),
        (b"a: &a [*a]", "1:4: an alias (*) is inside what it names"),
        (b"a: *hunter2", "1:4: is not valid YAML: found undefined alias"),
    ],
)
def test_what_is_not_yaml_is_reported_with_its_place(text: bytes, problem: str) -> None:
    assert problem in problems_in(text)


# --- keys ---


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BASE + "sever_port: 1", '8:1: unknown key "sever_port", did you mean "server_port"?'),
        (BASE + "JOB_NAME: x", '8:1: unknown key "JOB_NAME", did you mean "job_name"?'),
        (BASE + "tm_number: 3", '8:1: key "tm_number" is given twice (first at line 3)'),
        (BASE + "1: x", "8:1: a key must be text, got the number 1: put it in quotes"),
        (BASE + "spark: {mster: x}", '8:9: unknown key "mster", did you mean "master"?'),
        (
            BASE + "kafka: {a: 1, a: 2}",
            '8:15: key "a" is given twice (first at line 8)',
        ),
    ],
)
def test_keys_that_are_unknown_or_doubled_are_reported(text: str, problem: str) -> None:
    assert problems_in(text) == [problem]


def test_an_unknown_key_that_is_near_to_none_lists_them_all() -> None:
    (problem,) = problems_in(BASE + "zzz: 1")
    assert problem.startswith('8:1: unknown key "zzz": the keys are server_ip, server_port, ')


def test_all_missing_keys_are_reported_at_once() -> None:
    assert problems_in("\njob_name: x") == [
        '2:1: missing key "server_ip" (a broker\'s host name or address)',
        '2:1: missing key "server_port" (usually 9092)',
        '2:1: missing key "tm_number" (how many TaskManagers to wait for)',
        '2:1: missing key "parallelism" (partitions of every topic)',
        '2:1: missing key "replication_factor" (copies of every topic)',
        '2:1: missing key "source_topic" (the topic to read)',
        '2:1: missing key "sink_topic" (the topic to write)',
    ]


def test_problems_come_in_the_order_of_the_file() -> None:
    text = with_value("tm_number", "0").replace("server_ip: 127.0.0.1", "server_ip: ''")
    assert problems_in(text + "nope: 1\nzzz: 1")[:2] == [
        "1:12: server_ip is empty",
        "3:12: tm_number must be 1 to 10000, got 0",
    ]


@pytest.mark.parametrize(
    ("item", "got"),
    [("{a: 1, b: 2}", "2 keys"), ("{}", "0 keys"), ("x", 'the text "x"'), ("~", "nothing")],
)
def test_each_item_of_a_list_must_hold_one_key(item: str, got: str) -> None:
    problem = f"1:3: each item of the list must be one `key: value`, got {got}"
    assert problem in problems_in(f"- {item}\n")


def test_a_key_in_two_items_of_a_list_is_reported() -> None:
    items = "".join(f"- {line}\n" for line in BASE.splitlines())
    assert problems_in(items + "- tm_number: 2") == [
        '8:3: key "tm_number" is given twice (first at line 3)'
    ]


# --- types and ranges ---


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (
            "server_port",
            '"9092"',
            '2:14: server_port must be a whole number, got the text "9092": leave out the quotes',
        ),
        (
            "server_port",
            "true",
            "2:14: server_port must be a whole number, got the truth value true",
        ),
        ("server_port", "1.5", "2:14: server_port must be a whole number, got the number 1.5"),
        (
            "server_port",
            "12345678901234567890",
            "2:14: server_port must be a whole number of 19 digits or fewer, got the number "
            "12345678901234567890",
        ),
        ("server_port", "010", "2:14: server_port must be a whole number, got the number 010"),
        ("server_port", "1:30", "2:14: server_port must be a whole number, got the number 1:30"),
        ("server_port", "", "2:13: server_port must be a whole number, got nothing"),
        ("server_port", "[1]", "2:14: server_port must be a whole number, got a list"),
        ("server_port", "{a: 1}", "2:14: server_port must be a whole number, got a map"),
        ("server_port", "0", "2:14: server_port must be 1 to 65535, got 0"),
        ("server_port", "65536", "2:14: server_port must be 1 to 65535, got 65536"),
        ("tm_number", "0", "3:12: tm_number must be 1 to 10000, got 0"),
        ("parallelism", "-1", "4:14: parallelism must be 1 to 100000, got -1"),
        ("replication_factor", "0", "5:21: replication_factor must be 1 to 32767, got 0"),
        (
            "server_ip",
            "1.5",
            "1:12: server_ip must be a string, got the number 1.5: put it in quotes",
        ),
        (
            "server_ip",
            "on",
            "1:12: server_ip must be a string, got the truth value on: put it in quotes",
        ),
        ("server_ip", "[a]", "1:12: server_ip must be a string, got a list"),
        ("server_ip", "' '", "1:12: server_ip is empty"),
        ("server_ip", "a:92", '1:12: server_ip "a:92" has a port: it belongs in server_port'),
        (
            "server_ip",
            '"a,b"',
            '1:12: server_ip "a,b" is not one host name or address: '
            "several brokers go in kafka: {bootstrap.servers: …}",
        ),
        (
            "source_topic",
            "2020-01-31",
            "6:15: YAML reads this in its own way: put it in quotes",
        ),
        ("source_topic", "!x y", "6:15: YAML reads this in its own way: put it in quotes"),
        ("server_port", "!!int x", "2:14: this cannot be read as a YAML int"),
    ],
)
def test_required_values_of_a_wrong_type_or_range_are_reported(
    key: str, value: str, problem: str
) -> None:
    assert problems_in(with_value(key, value)) == [problem]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("job_name: 1", "11: job_name must be a string, got the number 1: put it in quotes"),
        ("job_name:", "10: job_name must be a string, got nothing"),
        ("job_name: ''", "11: job_name is empty"),
        ("heartbeat_interval_ms: 99", "24: heartbeat_interval_ms must be 100 to 60000, got 99"),
        (
            "heartbeat_interval_ms: 60001",
            "24: heartbeat_interval_ms must be 100 to 60000, got 60001",
        ),
        ("commit_interval_ms: 0", "21: commit_interval_ms must be 1 to 60000, got 0"),
        (
            "transaction_timeout_ms: 999",
            "25: transaction_timeout_ms must be 1000 to 900000, got 999",
        ),
        ("max_batch_records: 1000001", "20: max_batch_records must be 1 to 1000000, got 1000001"),
        (
            "python_path: [~nobody-has-this-name/x]",
            "14: python_path: '~nobody-has-this-name/x' is not a path: Could not determine home "
            "directory.",
        ),
        ("state_dir: 1", "12: state_dir must be a string, got the number 1: put it in quotes"),
        (
            "log_format: JSON",
            '13: log_format must be "console" or "json", got the text "JSON", did you mean "json"?',
        ),
        (
            "log_level: 1",
            '12: log_level must be "debug", "info", "warning" or "error", got the number 1',
        ),
        (
            "log_level: warn",
            '12: log_level must be "debug", "info", "warning" or "error", '
            'got the text "warn", did you mean "warning"?',
        ),
        ("spark: local", '8: spark must be a map, got the text "local"'),
        ("spark: {master: 1}", "17: master must be a string, got the number 1: put it in quotes"),
        (
            "spark: {conf: {spark.a: [1]}}",
            '25: Spark setting "spark.a" must be one value, got a list',
        ),
        ("spark: {conf: {ui.port: 1}}", '16: Spark setting "ui.port" must start with "spark."'),
        ("spark: {conf: {spark.master: x}}", '16: write "spark.master" as spark: {master: …}'),
        ("kafka: [a]", "8: kafka must be a map, got a list"),
        (
            "kafka: {a: [1]}",
            '12: kafka setting "a" must be a string, a number, true or false, got a list',
        ),
        (
            "kafka: {a: }",
            '11: kafka setting "a" must be a string, a number, true or false, got nothing',
        ),
        (
            "kafka: {bootstrap.servers: 5}",
            '28: kafka setting "bootstrap.servers" must be host:port[,host:port …]',
        ),
        ("num_standby_replicas: -1", "23: num_standby_replicas must be at least 0, got -1"),
        (
            "num_standby_replicas: 2",
            "23: num_standby_replicas (2) must be below tm_number (2): each copy lies on another "
            "TaskManager than the task",
        ),
        (
            "commit_interval_ms: 15000",
            "21: commit_interval_ms (15000) must be below transaction_timeout_ms (15000): "
            "Kafka aborts a transaction that is open for longer",
        ),
    ],
)
def test_optional_values_of_a_wrong_type_or_range_are_reported(line: str, problem: str) -> None:
    assert problems_in(BASE + line) == [f"8:{problem}"]


# --- names ---

CHARACTERS = 'which Kafka refuses in topic names: use letters, digits, ".", "_" and "-"'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            with_value("source_topic", "a/b"),
            f'6:15: source_topic "a/b" has the character "/", {CHARACTERS}',
        ),
        (with_value("sink_topic", ".."), '7:13: sink_topic ".." is a name that Kafka refuses'),
        (
            BASE + "job_name: my job",
            f'8:11: job_name "my job" has the character " ", {CHARACTERS}',
        ),
        (
            BASE + f"job_name: {'x' * 240}",
            "8:11: job_name is 14 characters too long: with it, the topic "
            '"heartbeat_events_topic" gets a name that Kafka refuses',
        ),
        (
            BASE + f"job_name: {'x' * 227}",
            "8:11: job_name is 1 character too long: with it, the topic "
            '"heartbeat_events_topic" gets a name that Kafka refuses',
        ),
        (
            BASE.replace("sink_topic: sink_topic", "sink_topic: source_topic"),
            '7:13: sink_topic is the source_topic "source_topic": '
            "the pipeline would read its own results",
        ),
        (
            BASE.replace("sink_topic: sink_topic", "sink_topic: source.topic"),
            '7:13: sink_topic "source.topic" and source_topic "source_topic" '
            'differ only in "." and "_", which Kafka refuses',
        ),
        (
            with_value("source_topic", "heartbeat_topic"),
            '6:15: source_topic "heartbeat_topic" is the name of '
            'the control topic "heartbeat_topic": choose another one',
        ),
        (
            with_value("sink_topic", "processors.topic.9_x") + "job_name: x",
            '7:13: sink_topic "processors.topic.9_x" is the name of '
            'one of the control topics "processors_topic_<id>_x": choose another one',
        ),
        (
            with_value("source_topic", "__consumer_offsets"),
            '6:15: source_topic "__consumer_offsets" is the name of '
            'Kafka\'s own topic "__consumer_offsets": choose another one',
        ),
    ],
)
def test_names_that_kafka_or_the_engine_cannot_use_are_reported(text: str, problem: str) -> None:
    assert problems_in(text) == [problem]


# --- properties of the whole ---

names = st.text(alphabet="abc_-", min_size=1, max_size=9)
printable = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1)
valid = st.fixed_dictionaries(
    {
        "server_ip": names,
        "server_port": st.integers(1, 65535),
        "tm_number": st.integers(1, 10**4),
        "parallelism": st.integers(1, 10**5),
        "replication_factor": st.integers(1, 32767),
        "source_topic": names.map(lambda name: f"in.{name}"),
        "sink_topic": names.map(lambda name: f"out.{name}"),
    },
    optional={
        "job_name": names,
        "heartbeat_interval_ms": st.integers(100, 60000),
        "max_batch_records": st.integers(1, 10**6),
        "log_format": st.sampled_from(["console", "json"]),
        "kafka": st.dictionaries(
            names.filter(lambda name: not name.endswith("_cb")),
            printable.filter(lambda text: "${" not in text) | st.integers() | st.booleans(),
        ),
    },
)


@given(valid)
def test_what_is_written_is_what_is_read(settings: dict[str, object]) -> None:
    config = load(yaml.safe_dump(settings))
    passed_on: Any = settings.pop("kafka", {})
    assert {key: getattr(config, key) for key in settings} == settings
    assert config.kafka == {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in passed_on.items()
    }


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.dates()
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*REQUIRED, "job_name", "spark", "kafka"]) | scalars, inner
        )
    ),
    max_leaves=12,
)


@given(anything.map(yaml.safe_dump) | st.text())
def test_nonsense_is_a_config_error_and_never_a_crash(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert all(p.line >= 1 and p.column >= 1 for p in caught.value.problems)


SWAPPED = "this is a pipeline.yaml, and config.yaml is expected here: are the two files swapped?"


@pytest.mark.parametrize(
    "text",
    [
        "- {id: A, type: sum, to: [sink]}",
        "- {type: sum}",
        "sources: {a: b}\nprocessors: []",
    ],
)
def test_a_pipeline_yaml_is_named_as_one(text: str) -> None:
    assert problems_in(text) == [f"1:1: {SWAPPED}"]


def test_a_config_yaml_with_a_key_of_a_pipeline_yaml_is_still_read_as_one() -> None:
    (problem,) = problems_in(f"{BASE}processors: []")
    assert problem.startswith('8:1: unknown key "processors"')
