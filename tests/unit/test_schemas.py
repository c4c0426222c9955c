"""The JSON Schemas and the reference tables: they are up to date and agree with the loaders."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.config_keys import CONFIG_KEYS, config_schema
from kafka_pipeline.common.config.keys import ConfigKey, Section, names
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.pipeline.file import pipeline_schema
from kafka_pipeline.streams.pipeline.kinds.kind import Kind
from kafka_pipeline.streams.pipeline.kinds.registry import KINDS
from kafka_pipeline.streams.pipeline.kinds.sources import SOURCE_KEYS
from kafka_pipeline.streams.pipeline.load import check_pipeline_file
from scripts.reference import ROOT, written_files
from tests.docs.pages import blocks
from tests.docs.story import is_pipeline
from tests.tiers import long_but_the_first

CONFIG_CHECK = Draft7Validator(config_schema())
PIPELINE_CHECK = Draft7Validator(pipeline_schema())
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

CONFIG: Mapping[str, Any] = {
    "server_ip": "kafka",
    "server_port": 9092,
    "tm_number": 3,
    "parallelism": 2,
    "replication_factor": 1,
    "source_topic": "in",
    "sink_topic": "out",
    "job_name": "job",
    "heartbeat_interval_ms": 1000,
    "commit_interval_ms": 100,
    "idle_after_ms": 3000,
    "max_timestamp_ahead_ms": 86400000,
    "transaction_timeout_ms": 15000,
    "max_batch_records": 10,
    "max_message_bytes": 8388608,
    "num_standby_replicas": 1,
    "on_new_partitions": "report",
    "state_dir": "state",
    "savepoint_dir": "savepoints",
    "log_format": "json",
    "log_level": "info",
    "log_record_values": True,
    "metrics_port": 9400,
    "metrics_host": "0.0.0.0",
    "state_port": 9480,
    "state_host": "0.0.0.0",
    "console_port": 0,
    "console_host": "127.0.0.1",
    "console_names": ["console.example"],
    "console_token_file": "console.token",
    "console_records": False,  # true needs the key before it, which the schema does not know
    "control_key_file": "control.key",
    "modules": ["shop.stock"],
    "python_path": ["src"],
    "spark": {"master": "local[2]", "conf": {"spark.executor.memory": "2g"}},
    "tables": {
        "formats": ["csv"],
        "paths": ["lookups", "s3a://bucket/lookups"],
        "write_paths": ["lake", "s3://bucket/lake"],
        "write_urls": ["postgresql://host:5432/shop"],
        "jdbc": {
            "urls": ["jdbc:postgresql://host:5432/shop"],
            "drivers": ["org.postgresql.Driver"],
        },
    },
    "secrets": {"variables": ["DB_PASSWORD"], "files": ["/run/secrets"]},
    "schema_registry": {
        "url": "https://one:8081,https://two:8081/path",
        "auth": {"user": "job", "password": "secret"},
        "ca_file": "ca.pem",
        "certificate": {"file": "job.pem", "key_file": "job.key", "key_password": "secret"},
        "timeout_ms": 1000,
    },
    "kafka": {"bootstrap.servers": "kafka:9092", "producer.linger.ms": 5, "debug": "broker"},
}
COMMON = {"was": "B", "on_error": {"dead_letter": "all"}, "max_dead_letters_per_minute": 5}
ENDS = {"from": ["source"], "to": ["sink"], **COMMON}
LIMITS = {
    "max_process_time_ms": 1000,
    "max_task_idle_ms": -1,
    "buffered_records_per_partition": 10,
}
QUERY = {
    "format": "json",
    "schema": "name STRING",
    "lenient": True,
    "out_value": {"avro": {"subject": "totals", "version": 2, "register": False}},
    "tables": {
        "stock": {
            "format": "csv",
            "path": "stock.csv",
            "schema": "name STRING",
            "options": {"header": True},
            "refresh_interval": "10 min",
        },
        "people": {"topic": "people", "schema": "name STRING", "global": True},
        "prices": {"topic": "prices", "schema": "price DOUBLE", "history": "10 min"},
    },
    "max_task_idle_ms": 5,
    "max_process_time_ms": 1000,
}
STORE = {"key": "string", "value": "json", "persistent": False, "logged": True}
PROCESSORS: Mapping[str, Mapping[str, Any]] = {
    "forward": {"id": "A", "type": "forward", **ENDS, "config": {}},
    "sum": {"id": "A", "type": "sum", **ENDS, "config": {"constant": -3}},
    "count": {"id": "A", "type": "count", **ENDS, "config": {}},
    "sql": {
        "id": "A",
        "type": "sql",
        **ENDS,
        "config": {},
        "query": "SELECT count(*) AS value FROM input GROUP BY window(timestamp, '1 hour')",
        "emit": "on_close",
        "grace": "10 min",
        "late_to": "sink",
        "close_after_idle": "30 s",
        "max_collected": 5,
        "ttl": "7 d",
        **QUERY,
    },
    "dataframe": {
        "id": "A",
        "type": "dataframe",
        **ENDS,
        "config": {"limit": 1},
        "function": "shop.stock:low",
        "group_by": {"key": True, "window": "1 h", "slide": "20 min", "offset": "5 min"},
        "emit": "on_close",
        "grace": "10 min",
        "late_to": "sink",
        "close_after_idle": "30 s",
        "max_collected": 5,
        **QUERY,
    },
    "topology": {
        "id": "A",
        "type": "topology",
        **COMMON,
        "config": {"limit": [1]},
        "builder": "shop.stock:build",
        **LIMITS,
    },
    "table": {
        "id": "A",
        "type": "table",
        "from": ["source"],
        "on_error": "dead_letter",
        "max_dead_letters_per_minute": 5,
        "format": "delta",
        "path": "lake/orders",
        "schema": "name STRING, day DATE",
        "partition_by": ["day"],
        "record_columns": {"key": "k", "timestamp": "at", "partition": "p", "offset": "o"},
        "mode": "upsert",
        "key": ["k"],
        "evolve": "add",
        "commit_interval_ms": 1000,
    },
    "table_in_database": {
        "id": "A",
        "type": "table",
        "format": "postgres",
        "url": "postgresql://host:5432/shop",
        "table": "sales.orders",
        "user": "ann",
        "password": "${DB_PASSWORD}",
        "mode": "append",
        "schema": "name STRING",
    },
    "table_in_catalog": {
        "id": "A",
        "type": "table",
        "format": "iceberg",
        "catalog": {
            "type": "sql",
            "uri": "postgresql://host:5432/shop",
            "warehouse": "s3://bucket/lake",
            "name": "lake",
            "credential": "${A}",
            "token": "${A}",
            "scope": "a",
            "audience": "a",
            "resource": "a",
            "s3.region": "a",
            "s3.access-key-id": "${A}",
            "s3.secret-access-key": "${A}",
            "s3.session-token": "${A}",
        },
        "table": "sales.orders",
        "schema": "name STRING, day DATE",
        "partition_by": ["day"],
    },
    "class": {
        "id": "A",
        "type": "shop.stock:Low",
        **ENDS,
        "config": {"limit": None},
        "serdes": {
            "key": "avro",
            "value": {"json_schema": {"subject": "orders", "register": True}},
            "out_key": {"protobuf": {"message": "shop:Order", "subject": "orders"}},
            "out_value": "bytes",
        },
        "stores": [
            {"name": "plain", **STORE, "type": "key_value"},
            {"name": "timed", "type": "timestamped_key_value"},
            {"name": "windows", "type": "window", "retention_ms": 100, "window_size_ms": 10},
            {"name": "sessions", "type": "session", "retention_ms": 100},
            {"name": "old", "type": "versioned_key_value", "history_retention_ms": 5},
            {"name": "newer", "format": 2, "upgrade": "shop.stock:upgrade", "former": ["json"]},
        ],
        "max_in_flight": 3,
        "timeout_ms": 1000,
        "ordered": "key",
        **LIMITS,
    },
}
SOURCE = {
    "topic": "orders",
    "key": "string",
    "value": "json",
    "schema": "time STRING",
    "timestamp": {"field": "time", "unit": "s", "on_invalid": "partition_time"},
    "auto_offset_reset": "latest",
    "feedback": True,
    "changelog": False,
    "format": "debezium",
}
WRITTEN = {
    "written_by": "shop/Orders",
    "record_columns": {"key": "k", "timestamp": "t", "partition": "p", "offset": "o"},
}
IN_FILES = {"format": "delta", "path": "lake/orders", **WRITTEN}
IN_CATALOG = {
    "format": "iceberg",
    "table": "shop.orders",
    "catalog": {"type": "sql", "uri": "sqlite:///lake/c.db", "warehouse": "lake", "name": "c"},
    **WRITTEN,
}
SOURCES: Mapping[str, Any] = {
    "sources": {
        "plain": "clicks",
        "whole": SOURCE,
        "now": {**SOURCE, "timestamp": "wall_clock"},
        "files": {"topic": "orders", "history": IN_FILES},
        "catalog": {"topic": "orders", "history": IN_CATALOG},
    },
    "sinks": {"totals": "totals_topic"},
    "processors": [{"id": "A", "type": "forward", "from": ["plain"], "to": ["totals"]}],
}
VALUES: tuple[Any, ...] = (
    *(None, "", " ", "two words", "a:b", "a.b", "..", "json", "key", "source", "sink", "input"),
    *(-2, 0, 1, 10**12, 1.5, True, False, [], {}, [""], ["x", "x"], [1], [[]]),
    *({"a": 1}, {"a": None}, {"topic": "t"}, {"id": "A"}),
)
PARTS = 13
"""A short test takes one of 13 changes. A place in a sample has 30, so each gets others."""
KEYS = ("unknown", "", "source", "sink", "input", "two words", "1", "a.b", "topic")
ONLY_THE_LOADER_SEES = re.compile(
    "unknown target|unknown source|cannot be a target|must be below"
    "|store .* has a (retention|window_size)_ms of"
    "|belongs to a (query|function|join of two inputs) with"
    "|slide must not be above window"
    "|under sources, none is given"
    "|only a SELECT that reads input|of the query cannot be read"
)


def loader_problem(load: Callable[[Path], object], content: object, folder: Path) -> str:
    """Return what the loader says about a file with this content, "" if it is right."""
    path = folder / "file.yaml"
    # LibYAML writes the same, several times as fast.
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper), encoding="utf-8")
    try:
        load(path)
    except ConfigError as error:
        return str(error)
    return ""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value inside of a value, the value itself included."""
    yield path
    inside = value.items() if isinstance(value, dict) else ()
    for key, each in enumerate(value) if isinstance(value, list) else inside:
        yield from places(each, (*path, key))


def changed(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield contents that differ from this one in one place, and how."""

    def change(path: tuple[Any, ...], do: Callable[[Any], None]) -> Any:
        whole = copy.deepcopy(content)
        inner = whole
        for key in path:
            inner = inner[key]
        do(inner)
        return whole

    for path in places(content):
        if path:
            *outer, last = path
            for value in VALUES:
                new = change(tuple(outer), lambda o, k=last, v=value: o.__setitem__(k, v))  # type: ignore[misc]
                yield f"{path} = {value!r}", new
            yield f"no {path}", change(tuple(outer), lambda o, k=last: o.__delitem__(k))  # type: ignore[misc]
        target = content
        for key in path:
            target = target[key]
        if isinstance(target, dict):
            for key in KEYS:
                yield f"{path} with {key!r}", change(path, lambda o, k=key: o.update({k: "x"}))  # type: ignore[misc]


def disagreements(
    load: Callable[[Path], object], check: Draft7Validator, content: Any, folder: Path, part: int
) -> list[str]:
    """Return where schema and loader disagree about a part of all changes of a content."""
    found = []
    for what, each in [("as it is", content), *islice(changed(content), part, None, PARTS)]:
        problem = loader_problem(load, each, folder)
        if check.is_valid(each):
            seen = [line for line in problem.splitlines() if not ONLY_THE_LOADER_SEES.search(line)]
            found += [f"{what}: the schema allows it; {line}" for line in seen]
        elif not problem:
            found.append(f"{what}: the loader allows it")
    return found


# --- what is written ---


@pytest.mark.parametrize("path", written_files())
def test_files_are_what_the_keys_make(path: str) -> None:
    shown = (ROOT / path).read_text(encoding="utf-8")
    assert shown == written_files()[path], f"{path} is out of date: run python -m scripts.reference"


@pytest.mark.parametrize("check", [CONFIG_CHECK, PIPELINE_CHECK])
def test_the_schemas_are_schemas(check: Draft7Validator) -> None:
    Draft7Validator.check_schema(check.schema)


# --- the samples of this file have all keys, so that a new key is tested too ---


def missing(keys: tuple[ConfigKey, ...] | list[ConfigKey], content: Mapping[str, Any]) -> list[str]:
    lacking = [name for name in names(keys) if name not in content]
    for key in keys:
        if isinstance(key, Section) and key.name in content:
            lacking += missing([*key.keys], content[key.name])
    return lacking


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.spec.type)
def test_the_sample_of_a_type_has_all_its_keys(kind: Kind[Any]) -> None:
    type_ = kind.spec.type
    places = [PROCESSORS.get(f"{type_}_in_{place}", {}) for place in ("catalog", "database")]
    sample = {**PROCESSORS[type_], **places[0], **places[1]}
    assert missing([*kind.keys], sample) == []


def test_the_samples_of_config_yaml_and_of_a_source_have_all_keys() -> None:
    assert missing(CONFIG_KEYS, CONFIG) == []
    assert missing(SOURCE_KEYS, {**SOURCE, "history": {**IN_FILES, **IN_CATALOG}}) == []


# --- schema and loader agree ---


each_part = pytest.mark.parametrize("part", long_but_the_first(range(PARTS)))


@each_part
@pytest.mark.parametrize("type_", PROCESSORS)
def test_schema_and_loader_agree_on_processors(type_: str, part: int, tmp_path: Path) -> None:
    content = [dict(PROCESSORS[type_])]
    assert disagreements(check_pipeline_file, PIPELINE_CHECK, content, tmp_path, part) == []


@each_part
def test_schema_and_loader_agree_on_sources_and_sinks(part: int, tmp_path: Path) -> None:
    content = dict(SOURCES)
    assert disagreements(check_pipeline_file, PIPELINE_CHECK, content, tmp_path, part) == []


@each_part
def test_schema_and_loader_agree_on_config_yaml(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both look at the path alone; the loader would also read the file.
    monkeypatch.setattr("kafka_pipeline.common.config.config.read_control_key", lambda _: None)
    assert disagreements(load_config, CONFIG_CHECK, dict(CONFIG), tmp_path, part) == []


@pytest.mark.parametrize("content", [[], {}, 1, "x", [{}], [{"id": "A"}], {"processors": []}])
def test_both_refuse_what_is_no_file_of_theirs(content: object, tmp_path: Path) -> None:
    assert loader_problem(check_pipeline_file, content, tmp_path)
    assert not PIPELINE_CHECK.is_valid(content)
    assert loader_problem(load_config, content, tmp_path)
    assert not CONFIG_CHECK.is_valid(content)


REQUIRED = {key.name: CONFIG[key.name] for key in CONFIG_KEYS if key.required}


@pytest.mark.parametrize(
    ("content", "is_right"),
    [
        ([{name: value} for name, value in REQUIRED.items()], True),
        ([{name: value} for name, value in REQUIRED.items() if name != "tm_number"], False),
        ([REQUIRED], False),
        ([{name: value} for name, value in REQUIRED.items()] + [{"server_prot": 1}], False),
        ({**REQUIRED, "server_port": "${PORT:-9092}", "kafka": {"debug": "${DEBUG:-all}"}}, True),
        ({**REQUIRED, "server_port": "9092"}, False),
        ({**REQUIRED, "server_port": "${PORT"}, False),
        ({**REQUIRED, "source_topic": "${TOPIC:-in}", "log_level": "${LEVEL:-info}"}, True),
        ({**REQUIRED, "kafka": {"acks": "1"}}, False),
        ({**REQUIRED, "kafka": {"producer.acks": "1"}}, False),
        ({**REQUIRED, "kafka": {"admin.bootstrap.servers": "kafka:9092"}}, False),
        ({**REQUIRED, "spark": {"conf": {"spark.master": "local"}}}, False),
        ({**REQUIRED, "modules": "shop", "python_path": "src"}, True),
    ],
)
def test_both_know_lists_and_variables_in_config_yaml(
    content: Any, is_right: bool, tmp_path: Path
) -> None:
    assert (loader_problem(load_config, content, tmp_path) == "") is is_right
    assert CONFIG_CHECK.is_valid(content) is is_right


@pytest.mark.parametrize(
    ("processor", "is_right"),
    [
        ({"type": "forward"}, True),
        ({"type": "forward", "on_error": {"skip": "all"}}, True),
        ({"type": "forward", "on_error": "skip: all"}, False),
        ({"type": "forward", "on_error": {"fail": "all"}}, False),
        ({"type": "forward", "on_error": {"skip": "all", "dead_letter": "all"}}, False),
        ({"type": "forward", "on_error": "dead_letter", "max_dead_letters_per_minute": 1}, True),
        ({"type": "forward", "on_error": "dead_letter", "max_dead_letters_per_minute": 0}, False),
        ({"type": "forward", "on_error": {"skip": "all"}, "max_dead_letters_per_minute": 1}, False),
        ({"type": "forward", "max_dead_letters_per_minute": 1}, False),
        ({"type": "Forward"}, False),
        ({"type": "shop.Low"}, False),
        ({"type": "sum", "config": {"constant": 2**63}}, False),
        ({"type": "count", "config": {"constant": 1}}, False),
        ({"type": "count", "stores": []}, False),
        ({"type": "sql"}, False),
        ({"type": "sql", "query": "SELECT 1", "schema": "a INT"}, False),
        ({"type": "sql", "query": "SELECT 1", "tables": {"Input": {"format": "csv"}}}, False),
        (
            {"type": "sql", "query": "SELECT 1", "tables": {"t": {"topic": "a", "history": "1 d"}}},
            True,
        ),
        (
            {
                "type": "sql",
                "query": "SELECT 1",
                "tables": {"t": {"topic": "a", "history": "1 d", "global": True}},
            },
            False,
        ),
        ({"type": "dataframe", "function": "low"}, False),
        ({"type": "topology", "builder": "shop:build"}, False),
        ({"type": "shop:Low", "stores": [{"name": "a", "retention_ms": 5}]}, False),
        ({"type": "shop:Low", "stores": [{"name": "a", "type": "window"}]}, False),
        ({"type": "shop:Low", "stores": [{"name": "a", "format": 256}]}, False),
        ({"type": "shop:Low", "stores": [{"name": "a", "upgrade": "shop:f"}]}, False),
        ({"type": "shop:Low", "stores": [{"name": "a", "format": 1, "upgrade": "shop:f"}]}, False),
        ({"type": "shop:Low", "stores": [{"name": "a", "format": 2, "former": ["json"]}]}, False),
        ({"type": "shop:Low", "stores": [{"name": "a", "format": 2, "upgrade": "shop:f"}]}, True),
        ({"type": "shop:Low", "ordered": False}, False),
        ({"type": "shop:Low", "on_error": "dead-letter"}, False),
        ({"type": "shop:Low", "to": "sink"}, False),
        ({"type": "shop:Low", "id": "sink"}, False),
    ],
)
def test_both_know_the_keys_of_each_type(
    processor: Mapping[str, Any], is_right: bool, tmp_path: Path
) -> None:
    content = [{"id": "A", "to": ["sink"], **processor}]
    assert (loader_problem(check_pipeline_file, content, tmp_path) == "") is is_right
    assert PIPELINE_CHECK.is_valid(content) is is_right


def test_the_schemas_allow_all_examples_of_the_documentation() -> None:
    sample = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    checked, wrong = 0, []
    for page in PAGES:
        for block in blocks(page):
            content = yaml.safe_load(block.text) if block.language == "yaml" else {"tests": []}
            if block.excuse or (isinstance(content, dict) and "tests" in content):
                continue
            checked += 1
            if is_pipeline(content):
                errors = PIPELINE_CHECK.iter_errors(content)
            else:
                errors = CONFIG_CHECK.iter_errors({**sample, **content})
            wrong += [f"{block}: {error.message}" for error in errors]
    assert wrong == []
    assert checked > 10


@pytest.mark.parametrize("name", ["config", "pipeline"])
def test_the_samples_name_their_schema(name: str) -> None:
    path = ROOT / f"{name}.yaml"
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# yaml-language-server: $schema=schemas/{name}.schema.json"
    assert (path.parent / first.partition("=")[2]).is_file()
    check = CONFIG_CHECK if name == "config" else PIPELINE_CHECK
    assert check.is_valid(yaml.safe_load(path.read_text(encoding="utf-8")))
