"""Serdes with schemas in pipeline.yaml: how they are given, and how records pass."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from msgspec import structs

from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.registry_questions import RegistryQuestions
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import ClassSpec, Serdes, SourceSpec
from kafka_pipeline.common.typed_json import as_json, from_json
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.schema_registry import SchemaRegistry, avro
from kafka_pipeline.streams.testing.driver import TopologyTestDriver
from tests.schema_registry import require_packages, standing_in

CONFIG = """
server_ip: "127.0.0.1"
server_port: 9092
tm_number: 1
parallelism: 1
replication_factor: 1
source_topic: orders
sink_topic: totals
modules: [{module}]
python_path: ["."]
"""
CODE = """
from kafka_pipeline import Processor


class Double(Processor):
    def process(self, record):
        self.context.forward(record.with_value({"amount": 2 * record.value["amount"]}))
"""
ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
)
NEWER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "amount", "type": "int"},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    }
)


class Job:
    """The files of a job whose class has the given serdes."""

    def __init__(self, folder: Path, serdes: str, registry: str = "", source: str = "") -> None:
        self.folder = folder
        # The modules of one process need different names.
        module = f"double_{abs(hash(folder))}"
        (folder / f"{module}.py").write_text(CODE)
        self.config, self.pipeline = folder / "config.yaml", folder / "pipeline.yaml"
        section = f"schema_registry: {{url: '{registry}'}}\n" if registry else ""
        self.config.write_text(CONFIG.format(module=module) + section)
        sources = f"sources: {{given: {{topic: orders, {source}}}}}\n" if source else ""
        from_ = "from: [given], " if source else ""
        self.pipeline.write_text(
            f"{sources}processors:\n- {{id: D, type: '{module}:Double', {from_}to: [sink], "
            f"serdes: {serdes}}}\n"
        )

    def spec(self) -> ClassSpec:
        (processor,) = load_pipeline(self.pipeline, load_config(self.config)).processors
        assert isinstance(processor.spec, ClassSpec)
        return processor.spec

    def problem(self) -> str:
        with pytest.raises(ConfigError) as caught:
            self.spec()
        (problem,) = caught.value.problems
        return f"{problem.line}: {problem.message}"

    def driver(self) -> TopologyTestDriver:
        return TopologyTestDriver.of_pipeline(self.config, self.pipeline)


# How they are given


def test_name_alone_leaves_subject_and_schema_to_topic_and_registry(tmp_path: Path) -> None:
    serde = SchemaSerde(kind="avro")
    spec = Job(tmp_path, "{key: json_schema, value: avro}").spec()
    assert (spec.serdes.value, spec.serdes.out_value) == (serde, serde)
    assert spec.serdes.key == SchemaSerde(kind="json_schema")


def test_schema_comes_from_a_file_next_to_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(ORDER)
    given = "{avro: {subject: orders, schema: order.avsc, register: true}}"
    spec = Job(tmp_path, f"{{value: {given}, out_value: json}}").spec()
    assert spec.serdes.value == SchemaSerde(
        kind="avro", subject="orders", schema=ORDER, register=True
    )
    assert spec.serdes.out_value == "json"


def test_class_of_messages_is_a_reference(tmp_path: Path) -> None:
    spec = Job(tmp_path, "{value: {protobuf: {message: 'shop_pb2:Order'}}}").spec()
    assert spec.serdes.value == SchemaSerde(kind="protobuf", message="shop_pb2:Order")


def test_source_may_have_fields_with_the_time(tmp_path: Path) -> None:
    job = Job(tmp_path, "{}", source="value: avro, timestamp: {field: placed}")
    (processor,) = load_pipeline(job.pipeline, load_config(job.config)).processors
    assert processor.sources["given"].value == SchemaSerde(kind="avro")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("avr", 'or "json_schema", or a map such as {avro: {subject: …}}, got the text "avr"'),
        ("protobuf", "or a map such as {avro: {subject: …}}"),
        ("{avro: orders}", 'avro must be a map, got the text "orders"'),
        ("{avro: {subjects: orders}}", 'unknown key "subjects", did you mean "subject"?'),
        ("{debezium_changes: json}", 'debezium_changes must be "avro", got the text "json"'),
        ("{avro: {version: 1, schema: a.avsc}}", "version takes the place of schema: leave out"),
        ("{avro: {schema: gone.avsc}}", "schema: gone.avsc cannot be read: No such file"),
        ("{protobuf: {}}", 'missing key "message" (the class of the messages)'),
        ("{protobuf: {message: shop.Order}}", 'did you mean "shop:Order"?'),
        ("{protobuf: {message: 'a:B', schema: c}}", 'unknown key "schema"'),
    ],
)
def test_mistakes_are_reported_with_their_line(given: str, expected: str, tmp_path: Path) -> None:
    problem = Job(tmp_path, f"{{value: {given}}}").problem()
    assert problem.startswith("2: ")
    assert expected in problem


def test_serdes_pass_through_the_control_topics() -> None:
    spec = Serdes(value=SchemaSerde(kind="avro", subject="orders", schema=ORDER), out_value="json")
    assert from_json(Serdes, as_json(spec), "serdes") == spec
    source = SourceSpec(key=SchemaSerde(kind="protobuf", message="a:B", register=True))
    assert from_json(SourceSpec, as_json(source), "source") == source
    with pytest.raises(ValueError, match="serdes"):
        from_json(Serdes, {"value": {"kind": "xml"}}, "serdes")
    assert structs.asdict(Serdes())["key"] == "bytes"


def test_registry_must_be_in_config_yaml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="avro needs a schema registry: give its address"):
        Job(tmp_path, "{value: avro}").driver()


def test_validate_reports_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, "{value: avro}", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "kafka_pipeline.common.kafka.avro_codec", None)
    with pytest.raises(ConfigError) as caught:
        load_files(job.config, job.pipeline, with_classes=True, with_init=True)
    (problem,) = caught.value.problems
    assert problem.line == 2
    assert problem.message == (
        '"D": serdes with a schema registry need more packages: '
        'pip install "kafka-pipeline[schemaregistry]"'
    )


# What the registry has against them

RENAMED = ORDER.replace("amount", "total")


def checked(job: Job) -> None:
    load_files(job.config, job.pipeline, registry=RegistryQuestions())


def complaint(job: Job) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(job)
    (problem,) = caught.value.problems
    return f"{problem.line}:{problem.column}: {problem.message}"


def test_registry_that_has_all_has_nothing_against_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(ORDER)
    with standing_in() as registry:
        avro(SchemaRegistry(registry.url), "totals-value", ORDER).serialize({"amount": 7})
        checked(Job(tmp_path, "{value: avro}", registry.url))
        given = "{value: {avro: {subject: totals-value, schema: order.avsc}}}"
        checked(Job(tmp_path, given, registry.url))
        given = "{value: {avro: {subject: new, schema: order.avsc, register: true}}}"
        checked(Job(tmp_path, given, registry.url))
        assert [subject for subject, _ in registry.ids] == ["totals-value"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{key: {avro: {register: true}}}", 'no subject "totals-key": register its schema'),
        ("{key: avro}", 'no subject "totals-key": register its schema'),
        ("{out_value: json_schema}", 'subject "totals-value" has a schema in AVRO, not JSON'),
        (
            "{out_value: {avro: {schema: renamed.avsc}}}",
            'the schema is not registered in subject "totals-value": register it, or say register',
        ),
        (
            "{value: {avro: {subject: totals-value, schema: renamed.avsc}}, out_value: json}",
            'version 1 of subject "totals-value" cannot be read: field "total" is missing',
        ),
        (
            "{out_value: {avro: {schema: renamed.avsc, register: true}}}",
            'the schema is not compatible with version 1 of subject "totals-value": field "total"',
        ),
    ],
)
def test_what_the_registry_lacks_is_reported_with_its_place(
    given: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "renamed.avsc").write_text(RENAMED)
    with standing_in() as registry:
        avro(SchemaRegistry(registry.url), "totals-value", ORDER).serialize({"amount": 7})
        registry.is_compatible = False
        job = Job(tmp_path, given, registry.url)
        found = complaint(job)
    line = job.pipeline.read_text().splitlines()[1]
    column = line.index(given) + given.index(": ") + 3
    assert found.startswith(f'2:{column}: "D": ')
    assert expected in found


def test_source_that_cannot_be_read_is_reported_at_its_name(tmp_path: Path) -> None:
    (tmp_path / "renamed.avsc").write_text(RENAMED)
    with standing_in() as registry:
        avro(SchemaRegistry(registry.url), "orders-value", ORDER).serialize({"amount": 7})
        source = "value: {avro: {schema: renamed.avsc}}"
        job = Job(tmp_path, "{}", registry.url, source)
        assert complaint(job).startswith('1:11: "D": version 1 of subject "orders-value" cannot')


def test_registry_that_refuses_is_quoted(tmp_path: Path) -> None:
    with standing_in() as registry:
        registry.status = 401
        assert "told to (HTTP status 401)" in complaint(
            Job(tmp_path, "{out_value: avro}", registry.url)
        )


def test_registry_that_does_not_answer_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with standing_in() as registry:
        url = registry.url
    checked(Job(tmp_path, "{key: avro, value: avro}", url))
    note = "note: schemas were not compared with the registry: the schema registry at "
    assert capsys.readouterr().err == f"{note}{url} does not answer: ConnectError\n"


def test_registry_in_memory_is_not_asked(tmp_path: Path) -> None:
    checked(Job(tmp_path, "{value: avro}", "mock://is-not-asked"))


# How records pass


def test_records_are_read_by_their_schema_and_written_by_the_latest(tmp_path: Path) -> None:
    with standing_in() as registry:
        here = SchemaRegistry(registry.url, {"max.retries": 0})
        orders = avro(here, "orders-value", ORDER)
        avro(here, "totals-value", ORDER).serialize({"amount": 0})
        totals = avro(here, "totals-value", NEWER)
        latest = totals.serialize({"amount": 14, "currency": "EUR"})
        with Job(tmp_path, "{key: string, value: avro}", registry.url).driver() as driver:
            driver.create_input_topic("orders").pipe_input(b"a", orders.serialize({"amount": 7}))
            (record,) = driver.create_output_topic("totals").read_records()
    assert record.value == latest


def test_data_of_another_version_is_read_as_the_schema_of_the_pipeline_says(
    tmp_path: Path,
) -> None:
    require_packages()
    (tmp_path / "newer.avsc").write_text(NEWER)
    (tmp_path / "order.avsc").write_text(ORDER)
    given = "{value: {avro: {schema: order.avsc}}, out_value: {avro: {schema: newer.avsc}}}"
    url = "mock://read-as-the-pipeline-says"
    here = SchemaRegistry.of(RegistrySettings(url), register=False)
    orders = avro(here, "orders-value", NEWER)
    with Job(tmp_path, given, url).driver() as driver:
        data = orders.serialize({"amount": 7, "currency": "SEK"})
        driver.create_input_topic("orders").pipe_input(None, data)
        (record,) = driver.create_output_topic("totals").read_records()
    assert avro(here, "totals-value").deserialize(record.value) == {
        "amount": 14,
        "currency": "EUR",
    }


def test_registry_that_is_away_loses_no_record_even_with_skip(tmp_path: Path) -> None:
    with standing_in() as registry:
        job = Job(tmp_path, "{value: avro, out_value: json}", registry.url)
        job.pipeline.write_text(job.pipeline.read_text().replace("id: D", "id: D, on_error: skip"))
        registry.status = 400
        data = b"\x00\x00\x00\x00\x01\x0e"
        with job.driver() as driver, pytest.raises(ConfigError, match="told to"):
            driver.create_input_topic("orders").pipe_input(None, data)
        url = registry.url
    job = Job(tmp_path, "{value: avro, out_value: json}", url)
    with job.driver() as driver, pytest.raises(UnavailableError, match="does not answer"):
        driver.create_input_topic("orders").pipe_input(None, data)
