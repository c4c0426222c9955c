"""User classes in pipeline.yaml: what is read, and the errors for mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from kafka_pipeline import serdes, stores
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    OnError,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.specs import ClassSpec, FieldTime, Serdes, SourceSpec
from kafka_pipeline.common.pipelines.spreading import Spreading
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.kinds.stores import loaded, store_of
from kafka_pipeline.streams.stores import StoreBuilder
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in
from tests.user_code.upgraded import upgrade

WEEK_MS = 7 * 86_400_000
SERDES = (
    '"boolean", "bytes", "debezium", "debezium_changes", "debezium_key", "float32", '
    '"float64", "int32", "int64", "integer", "json", "json_decimals", "string" or "uuid"'
)
ANY_SERDE = (
    f"{SERDES.replace(' or', ',')}, "
    '"avro" or "json_schema", or a map such as {avro: {subject: …}}'
)
STORE_TYPES = '"key_value", "timestamped_key_value", "window", "session" or "versioned_key_value"'
STORE_KEYS = "the keys are name, type, key, value, persistent, logged, format, upgrade, former"

BALANCE = """
sources:
  deposits: deposits_topic
  withdrawals: {topic: withdrawals_topic, value: json, timestamp: {field: at}}
sinks: {balances: balances_topic}
processors:
- id: Balance
  type: shop.bank:Balance
  from: [deposits, withdrawals]
  to: [balances, Next]
  serdes: {key: string, value: integer, out_value: string}
  stores:
  - {name: Balances, key: string, value: int64}
  - {name: Cache, logged: false, persistent: false}
  - {name: Windows, type: window, retention_ms: 60000, window_size_ms: 1000}
  config: {start: 100, limits: {low: -1.5, high: null}, tags: [a, 2, true]}
  on_error: dead_letter
  max_task_idle_ms: 500
  buffered_records_per_partition: 50
- {id: Next, type: forward, to: [sink]}
"""


def with_key(key: str) -> str:
    """Return a processor of a class with other keys, on line 1 from column 36 on."""
    return f'- {{id: A, type: "shop:A", to: [sink], {key}}}'


def node_with(key: str) -> PipelineProcessor:
    (node,) = load(with_key(key)).processors
    return node


def spec_with(key: str) -> ClassSpec:
    spec = node_with(key).spec
    assert isinstance(spec, ClassSpec)
    return spec


# --- what is read ---


def test_a_class_has_defaults_for_all_but_its_name() -> None:
    (node,) = load('[{id: A, type: "shop:A", to: [sink]}]').processors
    assert node == PipelineProcessor("A", ClassSpec(code="shop:A"), (SINK,), (SOURCE,))
    assert node.spec == ClassSpec(
        code="shop:A",
        config={},
        serdes=Serdes(key="bytes", value="bytes", out_key="bytes", out_value="bytes"),
        max_task_idle_ms=0,
        buffered_records=1000,
        max_process_time_ms=300_000,
    )
    assert (node.on_error, node.stores, node.sources) == (OnError.FAIL, (), {})


@pytest.mark.parametrize("reference", ["shop:A", "shop.bank:Balance", "_a.b2.c:_D"])
def test_code_is_named_by_module_and_class_and_is_not_imported(reference: str) -> None:
    (node,) = load(f'[{{id: A, type: "{reference}", to: [sink]}}]').processors
    assert node.spec == ClassSpec(code=reference)


def test_all_that_a_class_can_say_is_in_its_node() -> None:
    node = load(BALANCE).processor("Balance")
    spec = node.spec
    assert isinstance(spec, ClassSpec)
    assert spec.config == {
        "start": 100,
        "limits": {"low": -1.5, "high": None},
        "tags": ["a", 2, True],
    }
    assert node.on_error is OnError.DEAD_LETTER
    windows_policy = {"cleanup.policy": "compact,delete", "retention.ms": str(60_000 + WEEK_MS)}
    found = [structs.replace(store, content=None) for store in node.stores]
    windows = LoggedStore("Windows", windows_policy, spreading=Spreading(time="window"))
    assert found == [LoggedStore("Balances"), windows]
    assert node.is_stateful
    assert [store.name for store in spec.stores] == ["Balances", "Cache", "Windows"]
    assert (spec.max_task_idle_ms, spec.buffered_records) == (500, 50)
    assert spec.serdes == Serdes(
        key="string", value="integer", out_key="string", out_value="string"
    )
    assert node.sources == {
        "withdrawals": SourceSpec(value="json", timestamp=FieldTime(field="at"))
    }


@pytest.mark.parametrize(
    ("given", "key", "value", "out_key", "out_value"),
    [
        ("{}", "bytes", "bytes", "bytes", "bytes"),
        ("{key: string}", "string", "bytes", "string", "bytes"),
        ("{value: json, out_key: int64}", "bytes", "json", "int64", "json"),
        ("{key: uuid, out_key: string, out_value: json}", "uuid", "bytes", "string", "json"),
    ],
)
def test_what_goes_out_has_the_serdes_of_what_comes_in_unless_it_is_said(
    given: str, key: str, value: str, out_key: str, out_value: str
) -> None:
    serdes_ = spec_with(f"serdes: {given}").serdes
    assert serdes_ == Serdes(key=key, value=value, out_key=out_key, out_value=out_value)


@pytest.mark.parametrize("name", SERDES.replace('"', "").replace(" or ", ", ").split(", "))
def test_every_serde_of_the_documentation_can_be_named(name: str) -> None:
    assert spec_with(f"serdes: {{value: {name}}}").serdes.value == name
    assert serdes.by_name(name).name == name


@pytest.mark.parametrize(
    ("given", "store"),
    [
        ("{name: S}", stores.key_value("S", serdes.bytes, serdes.bytes)),
        (
            "{name: S, type: key_value, key: string, value: int64, persistent: false}",
            stores.key_value("S", serdes.string, serdes.int64, persistent=False),
        ),
        (
            "{name: S, type: timestamped_key_value, value: json, logged: false}",
            stores.timestamped_key_value("S", serdes.bytes, serdes.json, logged=False),
        ),
        (
            "{name: S, type: window, key: string, retention_ms: 5000, window_size_ms: 1000}",
            stores.window(
                "S", serdes.string, serdes.bytes, retention_ms=5_000, window_size_ms=1_000
            ),
        ),
        (
            "{name: S, type: session, retention_ms: 5000, persistent: false}",
            stores.session("S", serdes.bytes, serdes.bytes, retention_ms=5_000, persistent=False),
        ),
        (
            "{name: S, type: versioned_key_value, history_retention_ms: 0}",
            stores.versioned_key_value("S", serdes.bytes, serdes.bytes, history_retention_ms=0),
        ),
        (
            "{name: S, format: 7}",
            stores.key_value("S", serdes.bytes, serdes.bytes).with_format(7),
        ),
    ],
)
def test_stores_of_every_type_are_what_the_functions_of_python_make(
    given: str, store: StoreBuilder[Any, Any]
) -> None:
    node = node_with(f"stores: [{given}]")
    assert isinstance(node.spec, ClassSpec)
    (spec,) = node.spec.stores
    assert store_of(spec) == store
    logged = LoggedStore(
        "S", store.topic_config(), store.persistent, store.spreading, store.content
    )
    assert node.stores == ((logged,) if store.logged else ())


def test_upgrade_of_a_store_is_a_function_of_a_module_on_the_list() -> None:
    store = "stores: [{name: S, value: json, format: 2, upgrade: '%s', former: [int64]}]"
    spec = node_with(store % "tests.user_code.upgraded:upgrade").spec
    assert isinstance(spec, ClassSpec)
    definition = store_of(spec.stores[0])
    found = loaded(definition, UserCode.of(CONFIG))
    assert found.format.upgrade is upgrade
    assert found.content == definition.content
    for reference, problem in (
        ("tests.user_code.upgraded:missing", 'has no "missing"'),
        ("tests.user_code.upgraded:Totals", "is not a function of a value and its format"),
    ):
        spec = node_with(store % reference).spec
        assert isinstance(spec, ClassSpec)
        with pytest.raises(ConfigError, match=problem):
            loaded(store_of(spec.stores[0]), UserCode.of(CONFIG))
    (problem,) = problems_in(with_key(store % "os:remove"))
    assert 'module "os" is not on the list modules' in problem


def test_state_topics_are_those_of_logged_stores_and_have_a_partition_for_each_task() -> None:
    config = replace(CONFIG, job_name="job")
    loaded = load(BALANCE, config)
    specs = {spec.name: spec for spec in loaded.data_topics(config.replication_factor)}
    states = {name: spec for name, spec in specs.items() if name.startswith("state_topic")}
    assert list(states) == ["state_topic_Balance_Balances_job", "state_topic_Balance_Windows_job"]
    assert [spec.partitions for spec in states.values()] == [2, 2]
    assert [spec.config["cleanup.policy"] for spec in states.values()] == [
        "compact",
        "compact,delete",
    ]


@pytest.mark.parametrize("idle_ms", [-1, 0, 2**31 - 1])
def test_a_task_may_wait_for_its_inputs_never_or_as_long_as_it_is_said(idle_ms: int) -> None:
    assert spec_with(f"max_task_idle_ms: {idle_ms}").max_task_idle_ms == idle_ms


# --- what is sent to TaskManagers ---


def test_replicas_have_all_that_a_task_needs() -> None:
    loaded = load(BALANCE)
    first, second = replicas(loaded)[:2]
    node = loaded.processor("Balance")
    assert (str(first.task), str(second.task)) == ("Balance_0", "Balance_1")
    assert replace(second, task=first.task) == first
    assert (first.from_, first.to) == (("deposits", "withdrawals"), ("balances", "Next"))
    assert first.in_topics == ("deposits_topic", "withdrawals_topic")
    assert first.out_topics == ("balances_topic", "Balance_Next")
    assert first.state_topics == {
        "Balances": "state_topic_Balance_Balances",
        "Windows": "state_topic_Balance_Windows",
    }
    assert first.dead_letter_topic == "Balance_dead_letter"
    assert (first.spec, first.sources) == (node.spec, node.sources)


def round_trip(replica: ProcessorReplica) -> ProcessorReplica:
    data, parameters = json.dumps(replica.to_json()), json.dumps(replica.parameters())
    return ProcessorReplica.from_json(json.loads(data), json.loads(parameters))


def test_replicas_travel_as_json() -> None:
    for replica in replicas(load(BALANCE)):
        read = round_trip(replica)
        assert read == replica
        assert read.fingerprint == replica.fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("start: 100", "start: 101"),
        ("shop.bank:Balance", "shop.bank:Other"),
        ("value: int64", "value: int32"),
        ("out_value: string", "out_value: json"),
        ("field: at", "field: time"),
        ("max_task_idle_ms: 500", "max_task_idle_ms: 501"),
        ("on_error: dead_letter", "on_error: skip"),
        ("retention_ms: 60000", "retention_ms: 60001"),
    ],
)
def test_a_replica_that_does_something_else_has_another_fingerprint(old: str, new: str) -> None:
    assert BALANCE.count(old) == 1
    before, after = (replicas(load(text))[0] for text in (BALANCE, BALANCE.replace(old, new)))
    assert before.fingerprint != after.fingerprint


# --- mistakes, each alone ---


@pytest.mark.parametrize("reference", ["shop:", ":A", "shop:A.b", "my shop:A", "a:b:C", "a..b:C"])
def test_a_type_that_can_name_no_class_is_reported(reference: str) -> None:
    assert problems_in(f'- {{id: A, type: "{reference}", to: [sink]}}') == [
        f'1:17: "{reference}" names no code: write it as package.module:Name'
    ]


@pytest.mark.parametrize(
    ("reference", "meant"),
    [("shop.Balance", "shop:Balance"), ("shop.bank.Balance", "shop.bank:Balance")],
)
def test_a_class_that_is_named_as_in_an_import_is_one_mistake(reference: str, meant: str) -> None:
    entry = (
        f"- {{id: A, type: {reference}, to: [sink], config: {{start: 1}}, serdes: {{key: string}},"
        " stores: [{name: Balances}]}"
    )
    assert problems_in(entry) == [
        f'1:17: "{reference}" names no code: write it as package.module:Name, '
        f'did you mean "{meant}"?'
    ]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("serde: {}", '1:39: unknown key "serde", did you mean "serdes"?'),
        (
            "builder: a",
            '1:39: unknown key "builder": the keys are id, was, type, from, to, on_error, ',
        ),
        ("serdes: json", '1:47: serdes must be a map, got the text "json"'),
        (
            "serdes: {in: json}",
            '1:48: unknown key "in": the keys are key, value, out_key, out_value',
        ),
        (
            "serdes: {key: strng}",
            f'1:53: key must be {ANY_SERDE}, got the text "strng", did you mean "string"?',
        ),
        ("serdes: {out_value: 1}", f"1:59: out_value must be {ANY_SERDE}, got the number 1"),
        ("config: [1]", "1:47: config must be a map, got a list"),
        ("config: {a-b: 1}", '1:48: config: "a-b" cannot be the name of an argument'),
        ("config: {1: 2}", "1:48: a key must be text, got the number 1: put it in quotes"),
        (
            "config: {a: 2026-11-21}",
            "1:51: YAML reads this in its own way: put it in quotes",
        ),
        ("config: {a: [se, no]}", '1:56: YAML reads "no" as false: write that, or use quotes'),
        (
            "config: {a: {b: [-010]}}",
            '1:56: YAML reads "-010" as -8: write that, or use quotes',
        ),
        (
            "max_task_idle_ms: -2",
            "1:57: max_task_idle_ms must be -1 to 2147483647, got -2",
        ),
        (
            "max_task_idle_ms: 1.5",
            "1:57: max_task_idle_ms must be a whole number, got the number 1.5",
        ),
        (
            "buffered_records_per_partition: 0",
            "1:71: buffered_records_per_partition must be 1 to 2147483647, got 0",
        ),
    ],
)
def test_a_mistake_in_a_class_is_reported_once_with_its_place(key: str, problem: str) -> None:
    (found,) = problems_in(with_key(key))
    assert found.startswith(problem)


@pytest.mark.parametrize("key", ["stores: []", "serdes: {}", "max_task_idle_ms: 0"])
@pytest.mark.parametrize("type_", ["forward", "sum", "count"])
def test_a_built_in_type_takes_nothing_of_a_class(type_: str, key: str) -> None:
    name = key.partition(":")[0]
    (problem,) = problems_in(f"- {{id: A, to: [sink], type: {type_}, {key}}}")
    keys = "id, was, type, from, to, on_error, max_dead_letters_per_minute, config"
    assert f'unknown key "{name}": the keys are {keys}' in problem


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "1:46: stores must be a list, got nothing"),
        ("{name: S}", "1:47: stores must be a list, got a map"),
        ("[S]", '1:48: a store must be a map with a name, got the text "S"'),
        ("[{}]", '1:48: missing key "name" (the name by which the processor asks for the store)'),
        ("[{name: 1}]", "1:55: name must be a string, got the number 1: put it in quotes"),
        ("[{name: ''}]", "1:55: name is empty"),
        (
            "[{name: a b}]",
            '1:48: the name "a b" of a store has the character " ", which Kafka refuses in topic '
            'names: use letters, digits, ".", "_" and "-"',
        ),
        ("[{name: S}, {name: S}]", '1:59: store "S" is given twice'),
        ("[{name: S, nam: S}]", '1:58: unknown key "nam", did you mean "name"?'),
        ("[{name: S, zzz: S}]", f'1:58: unknown key "zzz": {STORE_KEYS}'),
        (
            "[{name: S, type: windw}]",
            f'1:64: type must be {STORE_TYPES}, got the text "windw", did you mean "window"?',
        ),
        (
            "[{name: S, type: windw, retention_ms: 1}]",
            f'1:64: type must be {STORE_TYPES}, got the text "windw", did you mean "window"?',
        ),
        ("[{name: S, key: [json]}]", f"1:63: key must be {SERDES}, got a list"),
        (
            "[{name: S, value: jso}]",
            f'1:65: value must be {SERDES}, got the text "jso", did you mean "json"?',
        ),
        ("[{name: S, persistent: 1}]", "1:70: persistent must be true or false, got the number 1"),
        (
            "[{name: S, logged: 'no'}]",
            '1:66: logged must be true or false, got the text "no"',
        ),
        ("[{name: S, retention_ms: 1}]", f'1:58: unknown key "retention_ms": {STORE_KEYS}'),
        (
            "[{name: S, type: session, history_retention_ms: 1, retention_ms: 1}]",
            '1:73: unknown key "history_retention_ms", did you mean "retention_ms"?',
        ),
        (
            "[{name: S, type: session}]",
            '1:48: missing key "retention_ms" (milliseconds)',
        ),
        (
            "[{name: S, type: session, retention_ms: long}]",
            '1:87: retention_ms must be a whole number, got the text "long"',
        ),
        (
            "[{name: S, type: session, retention_ms: -1}]",
            "1:87: retention_ms must be at least 1, got -1",
        ),
        (
            "[{name: S, type: versioned_key_value, history_retention_ms: -1}]",
            "1:107: history_retention_ms must be at least 0, got -1",
        ),
        (
            "[{name: S, type: window, retention_ms: 1}]",
            '1:48: missing key "window_size_ms" (milliseconds)',
        ),
        (
            "[{name: S, type: window, retention_ms: 1, window_size_ms: 2}]",
            '1:48: the window store "S" has a retention_ms of 1, below its window_size_ms of 2: '
            "windows must be kept at least until they end",
        ),
        (
            "[{name: S, type: versioned_key_value}]",
            '1:48: missing key "history_retention_ms" (milliseconds)',
        ),
        (
            "[{name: a.b}, {name: a_b}]",
            '1:8: the state of store "a_b" of "A" needs the topic "state_topic_A_a_b", and the '
            'state of store "a.b" of "A" (line 1) "state_topic_A_a.b": they differ only in "." '
            'and "_", which Kafka refuses',
        ),
    ],
)
def test_a_mistake_in_a_store_is_reported_once_with_its_place(given: str, problem: str) -> None:
    assert problems_in(with_key(f"stores: {given}")) == [problem]


def test_every_store_with_a_mistake_is_reported() -> None:
    text = """\
- id: A
  type: shop:A
  to: [sink]
  stores:
  - {name: 1}
  - {name: 2}
  - name: Fine
  - nam: Bad
  - {name: Bad, type: session, retention_ms: -5}
"""
    assert problems_in(text) == [
        "5:12: name must be a string, got the number 1: put it in quotes",
        "6:12: name must be a string, got the number 2: put it in quotes",
        '8:5: unknown key "nam", did you mean "name"?',
        '8:5: missing key "name" (the name by which the processor asks for the store)',
        "9:46: retention_ms must be at least 1, got -5",
    ]


def test_names_of_two_stores_and_two_classes_that_make_one_state_topic_are_refused() -> None:
    text = """\
- {id: A_B, type: "shop:A", to: [sink], stores: [{name: C}]}
- {id: A, type: "shop:A", to: [sink], stores: [{name: B_C}]}
"""
    assert problems_in(text) == [
        '2:8: the state of store "B_C" of "A" needs the topic "state_topic_A_B_C", which is that '
        'of the state of store "C" of "A_B" (line 1): rename one'
    ]


def test_module_that_config_yaml_does_not_allow_is_told_before_anything_runs() -> None:
    assert problems_in('[{id: A, type: "other:A", to: [sink]}]') == [
        '1:7: "A": module "other" is not on the list modules: of config.yaml, which has '
        "shop, tests.user_code, _a: add it if its code may run"
    ]
