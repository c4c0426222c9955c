"""Serdes with a schema registry that runs in the test, if the extra is installed."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import nan
from pathlib import Path
from typing import Any
from uuid import uuid4

import certifi
import pytest

from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.schema_registry import client_of, shared_client
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.schema_registry import SchemaRegistry, avro, json_schema, protobuf
from kafka_pipeline.streams.serdes import Serde
from tests.schema_registry import StandIn, order_type, standing_in

ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
)
NEWER_ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "amount", "type": "int"},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    }
)
JSON_ORDER = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"amount": {"type": "integer"}},
        "required": ["amount"],
    }
)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with standing_in() as found:
        yield found


def without_retries(stand_in: StandIn, register: bool = True) -> SchemaRegistry:
    return SchemaRegistry(stand_in.url, {"max.retries": 0}, register)


def avro_serde(stand_in: StandIn, schema: str = ORDER) -> Serde[Any]:
    return avro(without_retries(stand_in), "orders-value", schema)


def json_serde(stand_in: StandIn) -> Serde[Any]:
    return json_schema(without_retries(stand_in), "orders-value", JSON_ORDER)


# Without the extra


@pytest.mark.parametrize("make", [avro, json_schema, protobuf])
def test_missing_extra_is_named(
    make: Callable[[SchemaRegistry, str, Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("", ".avro", ".json_schema", ".protobuf"):
        monkeypatch.setitem(sys.modules, f"confluent_kafka.schema_registry{module}", None)
    with pytest.raises(ConfigError, match=r'pip install "kafka-pipeline\[schemaregistry\]"'):
        make(SchemaRegistry("http://localhost:8081"), "orders-value", ORDER)


def test_settings_such_as_passwords_are_not_shown() -> None:
    registry = SchemaRegistry("http://localhost", {"basic.auth.user.info": "user:secret"})
    assert "secret" not in repr(registry)


# There and back


def test_avro_record_comes_back(stand_in: StandIn) -> None:
    serde = avro_serde(stand_in)
    data = serde.serialize({"amount": 7})
    assert data == b"\x00\x00\x00\x00\x01\x0e"
    assert serde.deserialize(data) == {"amount": 7}
    assert serde.name == "avro of orders-value"


def test_json_object_comes_back(stand_in: StandIn) -> None:
    serde = json_serde(stand_in)
    data = serde.serialize({"amount": 7})
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    assert json.loads(data[5:]) == {"amount": 7}
    assert serde.deserialize(data) == {"amount": 7}


def test_protobuf_message_comes_back(stand_in: StandIn) -> None:
    order = order_type()
    serde = protobuf(without_retries(stand_in), "orders-value", order)
    data = serde.serialize(order(amount=7))
    assert data == b"\x00\x00\x00\x00\x01\x00\x08\x07"
    assert serde.deserialize(data) == order(amount=7)


def test_registry_is_asked_once_for_each_schema(stand_in: StandIn) -> None:
    serde = avro_serde(stand_in)
    for amount in range(3):
        serde.deserialize(serde.serialize({"amount": amount}))
    reader = avro_serde(stand_in)
    for amount in range(3):
        reader.deserialize(serde.serialize({"amount": amount}))
    assert stand_in.requests == ["POST /subjects/orders-value/versions"]
    # A process has one client, which knows what it has registered. Another process asks.
    reader = avro(SchemaRegistry(stand_in.url, {"timeout": 4}), "orders-value")
    for amount in range(3):
        reader.deserialize(serde.serialize({"amount": amount}))
    assert stand_in.requests[1:] == ["GET /schemas/ids/1"]


def test_what_another_version_wrote_is_read_by_this_one(stand_in: StandIn) -> None:
    old, new = avro_serde(stand_in), avro_serde(stand_in, NEWER_ORDER)
    assert new.deserialize(old.serialize({"amount": 7})) == {"amount": 7, "currency": "EUR"}
    assert old.deserialize(new.serialize({"amount": 8, "currency": "SEK"})) == {"amount": 8}


def test_registered_schema_is_found_where_registering_is_not_allowed(stand_in: StandIn) -> None:
    data = avro_serde(stand_in).serialize({"amount": 7})
    reader = avro(without_retries(stand_in, register=False), "orders-value", ORDER)
    assert reader.serialize({"amount": 7}) == data
    assert stand_in.requests[-1] == "POST /subjects/orders-value"


# The record's fault


@pytest.mark.parametrize("make", [avro_serde, json_serde])
def test_value_that_does_not_fit_the_schema_is_refused_without_payload(
    make: Callable[[StandIn], Serde[Any]], stand_in: StandIn
) -> None:
    serde = make(stand_in)
    with pytest.raises(SerializationError, match="cannot write this: it does not fit") as caught:
        serde.serialize({"amount": "secret"})
    assert "secret" not in str(caught.value)


def test_field_that_does_not_fit_is_named_with_the_version(stand_in: StandIn) -> None:
    avro_serde(stand_in).serialize({"amount": 7})
    avro_serde(stand_in, NEWER_ORDER).serialize({"amount": 7})
    serde = avro(without_retries(stand_in), "orders-value")
    with pytest.raises(
        SerializationError, match=r'version 2 \(id 2\): field "Order\.amount" is a str'
    ):
        serde.serialize({"amount": "secret"})
    with pytest.raises(
        SerializationError, match=r'field "Order\.amount" is null or missing, not int'
    ):
        serde.serialize({"currency": "secret"})
    with pytest.raises(SerializationError, match="it is a list, not record Order"):
        serde.serialize(["secret"])


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ([{"name": "currency", "type": "string"}], 'field "currency" is missing, and has no'),
        ([{"name": "amount", "type": "string"}], 'field "amount" is int, not string'),
        (
            [
                {"name": "amount", "type": {"type": "int", "logicalType": "date"}},
                {"name": "a", "type": "int"},
            ],
            'field "a" is missing',
        ),
    ],
)
def test_versions_that_do_not_fit_are_named_with_the_field(
    fields: list[dict[str, Any]], fault: str, stand_in: StandIn
) -> None:
    data = avro_serde(stand_in).serialize({"amount": 7})
    other = avro_serde(stand_in, json.dumps({"type": "record", "name": "Order", "fields": fields}))
    reads = "the schema of the pipeline"
    with pytest.raises(SerializationError) as caught:
        other.deserialize(data)
    assert f"version 1 (id 1) wrote them, {reads} reads them: {fault}" in str(caught.value)


def test_version_that_reads_is_named_if_it_is_registered(stand_in: StandIn) -> None:
    old = json.dumps({"type": "record", "name": "Order", "fields": []})
    data = avro_serde(stand_in, old).serialize({})
    newer = avro_serde(stand_in)
    newer.serialize({"amount": 7})
    with pytest.raises(SerializationError, match=r"1 \(id 1\) wrote them, version 2 reads them"):
        newer.deserialize(data)


def test_id_of_a_schema_in_another_language_is_the_fault_of_the_bytes(stand_in: StandIn) -> None:
    data = json_serde(stand_in).serialize({"amount": 7})
    with pytest.raises(SerializationError, match="the id of a schema in JSON, not Avro"):
        avro_serde(stand_in).deserialize(data)


def test_subject_with_schemas_in_another_language_is_an_error_of_the_configuration(
    stand_in: StandIn,
) -> None:
    json_serde(stand_in).serialize({"amount": 7})
    with pytest.raises(ConfigError, match="orders-value has a schema in JSON"):
        avro(without_retries(stand_in), "orders-value").serialize({"amount": 7})


def test_rules_of_a_schema_are_refused(stand_in: StandIn) -> None:
    data = avro_serde(stand_in).serialize({"amount": 7})
    rule = {"name": "hide", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}
    stand_in.schemas[0]["ruleSet"] = {"domainRules": [rule]}
    serde = avro(SchemaRegistry(stand_in.url, {"timeout": 4}), "orders-value")
    with pytest.raises(ConfigError, match="has rules, which are not supported: hide"):
        serde.deserialize(data)
    with pytest.raises(ConfigError, match="has rules, which are not supported: hide"):
        serde.serialize({"amount": 7})


def test_schema_that_refers_to_another_one_reads_and_writes(stand_in: StandIn) -> None:
    avro_serde(stand_in).serialize({"amount": 7})
    fields = [{"name": "order", "type": "Order"}]
    stand_in.post(
        "/subjects/bills-value/versions",
        {
            "schema": json.dumps({"type": "record", "name": "Bill", "fields": fields}),
            "references": [{"name": "Order", "subject": "orders-value", "version": 1}],
        },
    )
    serde = avro(without_retries(stand_in), "bills-value")
    assert serde.deserialize(serde.serialize({"order": {"amount": 7}})) == {"order": {"amount": 7}}


def test_bytes_alone_have_no_length_as_confluent_writes_them(stand_in: StandIn) -> None:
    serde = avro_serde(stand_in, '"bytes"')
    assert serde.serialize(b"seven") == b"\x00\x00\x00\x00\x01seven"
    assert serde.deserialize(b"\x00\x00\x00\x00\x01seven") == b"seven"
    with pytest.raises(SerializationError, match="it is a str, not bytes"):
        serde.serialize("seven")


def test_confluents_classes_read_and_write_the_same_bytes(stand_in: StandIn) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    schema = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "note", "type": ["null", "string"], "default": None},
                {
                    "name": "lines",
                    "type": {"type": "array", "items": json.loads(ORDER) | {"name": "Line"}},
                },
                {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            ],
        }
    )
    value = {
        "placed": datetime(2026, 11, 27, 14, 30, tzinfo=UTC),
        "note": "to the back door",
        "lines": [{"amount": 7}, {"amount": -1}],
        "kind": "B",
    }
    client = SchemaRegistryClient({"url": stand_in.url})
    context = SerializationContext("orders", MessageField.VALUE)
    conf = {"subject.name.strategy": lambda context, record: "orders-value"}
    theirs = AvroSerializer(client, schema, conf=conf)(value, context)
    ours = avro_serde(stand_in, schema)
    assert ours.serialize(value) == theirs
    assert ours.deserialize(theirs) == AvroDeserializer(client, conf=conf)(theirs, context) == value


def test_broken_rule_of_a_json_schema_is_named(stand_in: StandIn) -> None:
    serde = json_serde(stand_in)
    with pytest.raises(SerializationError, match='which says "required" of field "amount"'):
        serde.serialize({})
    data = serde.serialize({"amount": 7})[:5] + b'{"amount":"secret"}'
    with pytest.raises(
        SerializationError, match='fit the schema, which says "type" of field "amount"'
    ):
        serde.deserialize(data)


def test_multiples_are_those_of_the_numbers_as_they_are_written(stand_in: StandIn) -> None:
    schema = json.dumps({"properties": {"x": {"multipleOf": 0.01}}})
    serde = json_schema(without_retries(stand_in), "orders-value", schema)
    for number in (19.99, 0.07, 1e300, 5, -8.2):
        assert serde.deserialize(serde.serialize({"x": number})) == {"x": number}
    with pytest.raises(SerializationError, match='says "multipleOf" of field "x"'):
        serde.serialize({"x": 19.995})


def test_message_of_another_class_is_refused(stand_in: StandIn) -> None:
    serde = protobuf(without_retries(stand_in), "orders-value", order_type())
    with pytest.raises(SerializationError, match="does not fit the schema, ValueError"):
        serde.serialize({"amount": 7})


def test_message_of_another_type_in_the_same_file_is_refused(stand_in: StandIn) -> None:
    payment = order_type("Payment")
    payments = protobuf(without_retries(stand_in), "orders-value", payment)
    orders = protobuf(without_retries(stand_in), "orders-value", order_type())
    data = payments.serialize(payment(amount=7))
    assert payments.deserialize(data).amount == 7
    with pytest.raises(SerializationError, match="they are a message Payment, not Order"):
        orders.deserialize(data)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"amount": 7, "x": nan}, "it is not JSON: a number in it is not finite"),
        ({"amount": 7, 7: 1, "7": 2}, "it is not JSON: a name in it is not a string"),
    ],
)
def test_value_that_json_does_not_have_is_refused(
    value: Any, words: str, stand_in: StandIn
) -> None:
    with pytest.raises(SerializationError, match=words):
        json_serde(stand_in).serialize(value)


@pytest.mark.parametrize(
    "text", [b'{"amount":7,"x":NaN}', b'{"amount":7,"x":1e400}', b"{", b"\xff"]
)
def test_data_that_is_not_json_is_refused(text: bytes, stand_in: StandIn) -> None:
    serde = json_serde(stand_in)
    frame = serde.serialize({"amount": 7})[:5]
    with pytest.raises(SerializationError, match="they are not JSON"):
        serde.deserialize(frame + text)


@pytest.mark.parametrize("data", [b"", b"7", b'{"amount":7}'])
def test_bytes_that_were_written_without_a_registry_are_refused(
    data: bytes, stand_in: StandIn
) -> None:
    with pytest.raises(SerializationError, match="do not begin with the id of a schema"):
        avro_serde(stand_in).deserialize(data)
    assert stand_in.requests == []


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00\x00", b"\x00\x00\x00\x00\x01"])
def test_bytes_that_end_too_early_are_refused(data: bytes, stand_in: StandIn) -> None:
    serde = avro_serde(stand_in)
    serde.serialize({"amount": 7})
    with pytest.raises(SerializationError, match="they do not fit the schema"):
        serde.deserialize(data)


def test_id_that_the_registry_does_not_know_is_the_fault_of_the_bytes(stand_in: StandIn) -> None:
    with pytest.raises(SerializationError, match="has no schema with their id"):
        avro_serde(stand_in).deserialize(b"\x00\x00\x00\x00\x63\x0e")


# The registry's fault, or the configuration's


@pytest.mark.parametrize("status", [429, 500, 503])
def test_registry_that_cannot_answer_now_is_no_fault_of_a_record(
    status: int, stand_in: StandIn
) -> None:
    serde = avro_serde(stand_in)
    stand_in.status = status
    with pytest.raises(UnavailableError, match=f"cannot answer now: HTTP status {status}"):
        serde.serialize({"amount": 7})
    with pytest.raises(UnavailableError, match=f"cannot answer now: HTTP status {status}"):
        serde.deserialize(b"\x00\x00\x00\x00\x01\x0e")
    stand_in.status = 0
    assert serde.deserialize(serde.serialize({"amount": 7})) == {"amount": 7}


def test_registry_that_is_away_is_no_fault_of_a_record(stand_in: StandIn) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        port = closed.server_port
    registry = SchemaRegistry(f"http://user:secret@127.0.0.1:{port}", {"max.retries": 0})
    serde = avro(registry, "orders-value", ORDER)
    with pytest.raises(UnavailableError, match=f"http://127.0.0.1:{port} does not answer"):
        serde.serialize({"amount": 7})


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("page", ["<html>Log in</html>", "", "[]"])
def test_answer_that_is_not_a_registrys_is_no_fault_of_a_record(
    status: int, page: str, stand_in: StandIn
) -> None:
    serde = avro_serde(stand_in)
    data = serde.serialize({"amount": 7})
    stand_in.status, stand_in.page = status, page
    words = f"does not answer as a registry does: HTTP status {status}"
    with pytest.raises(UnavailableError, match=words):
        serde.deserialize(data[:4] + b"\x63" + data[5:])
    with pytest.raises(UnavailableError, match=words):
        json_serde(stand_in).serialize({"amount": 7})


def test_page_of_a_proxy_is_not_quoted(stand_in: StandIn) -> None:
    stand_in.status, stand_in.page = 302, "<html>Log in</html>"
    with pytest.raises(ConfigError, match="its answer is not that of a registry"):
        avro_serde(stand_in).serialize({"amount": 7})


@pytest.mark.parametrize("status", [401, 409, 422])
def test_registry_that_refuses_is_an_error_of_the_configuration(
    status: int, stand_in: StandIn
) -> None:
    serde = avro_serde(stand_in)
    stand_in.status = status
    with pytest.raises(ConfigError, match=rf"orders-value needs: told to \(HTTP status {status}\)"):
        serde.serialize({"amount": 7})


def test_schema_that_is_not_registered_is_an_error_of_the_configuration(stand_in: StandIn) -> None:
    serde = avro(without_retries(stand_in, register=False), "orders-value", ORDER)
    with pytest.raises(ConfigError, match="Schema not found"):
        serde.serialize({"amount": 7})


@pytest.mark.parametrize("make", [avro, json_schema])
def test_text_that_is_no_schema_is_refused_at_once(
    make: Callable[[SchemaRegistry, str, str], object], stand_in: StandIn
) -> None:
    with pytest.raises(ConfigError, match="the schema of subject orders-value is no"):
        make(without_retries(stand_in), "orders-value", "{")


def test_setting_that_does_not_exist_is_refused(stand_in: StandIn) -> None:
    with pytest.raises(ConfigError, match="settings of the schema registry are wrong"):
        avro(SchemaRegistry(stand_in.url, {"colour": "red"}), "orders-value", ORDER)


# Without a schema


def test_latest_schema_writes_and_data_is_read_as_it_was_written(stand_in: StandIn) -> None:
    old, new = avro_serde(stand_in), avro_serde(stand_in, NEWER_ORDER)
    former = old.serialize({"amount": 7})
    new.serialize({"amount": 7, "currency": "SEK"})
    serde = avro(without_retries(stand_in, register=False), "orders-value")
    data = serde.serialize({"amount": 8, "currency": "SEK"})
    assert data[:5] == b"\x00\x00\x00\x00\x02"
    assert serde.deserialize(data) == {"amount": 8, "currency": "SEK"}
    assert serde.deserialize(former) == {"amount": 7}


def test_subject_without_a_schema_is_an_error_of_the_configuration(stand_in: StandIn) -> None:
    serde = avro(without_retries(stand_in, register=False), "orders-value")
    with pytest.raises(ConfigError, match="orders-value needs: Schema not found"):
        serde.serialize({"amount": 7})


def test_latest_json_schema_checks_what_is_written(stand_in: StandIn) -> None:
    json_serde(stand_in).serialize({"amount": 7})
    serde = json_schema(without_retries(stand_in, register=False), "orders-value")
    assert serde.deserialize(serde.serialize({"amount": 7})) == {"amount": 7}
    with pytest.raises(SerializationError, match='which says "required"'):
        serde.serialize({})


@pytest.mark.parametrize("name", ["http://shop/amount.json", "amount.json"])
def test_json_schema_may_refer_to_another_one_from_where_it_is(name: str) -> None:
    registry = SchemaRegistry(f"mock://{uuid4()}")
    of_orders(registry, name, reference=name)
    serde = json_schema(registry, "orders-value")
    for _ in range(2):
        assert serde.deserialize(serde.serialize({"amount": 7})) == {"amount": 7}
    with pytest.raises(SerializationError, match='says "type" of field "amount"'):
        serde.serialize({"amount": "7"})


def test_record_is_not_blamed_for_a_reference_that_is_missing() -> None:
    registry = SchemaRegistry(f"mock://{uuid4()}")
    of_orders(registry, "amounts.json", reference="amount.json")
    with pytest.raises(ConfigError, match='orders-value refers to "amounts'):
        json_schema(registry, "orders-value").serialize({"amount": 7})


def test_no_url_that_a_schema_names_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records choose the schema that reads them: confluent-kafka-python 2269."""
    asked: list[str] = []

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    registry = SchemaRegistry(f"mock://{uuid4()}")
    of_orders(registry, "https://elsewhere.example/amount.json", reference="amount.json")
    with pytest.raises(ConfigError, match='refers to "https://elsewhere'):
        json_schema(registry, "orders-value").serialize({"amount": 7})
    assert asked == []


def of_orders(registry: SchemaRegistry, name: str, reference: str) -> None:
    """Register a JSON schema that refers to a `name`, with one reference."""
    from confluent_kafka.schema_registry import Schema, SchemaReference

    client = client_of(registry)
    client.register_schema("amount", Schema('{"type": "integer"}', "JSON"))
    order = {"$id": "http://shop/order.json", "properties": {"amount": {"$ref": name}}}
    references = [SchemaReference(reference, "amount", 1)]
    client.register_schema("orders-value", Schema(json.dumps(order), "JSON", references))


def test_protobuf_is_written_by_the_latest_schema(stand_in: StandIn) -> None:
    order = order_type()
    data = protobuf(without_retries(stand_in), "orders-value", order).serialize(order(amount=7))
    serde = protobuf(without_retries(stand_in, register=False), "orders-value", order)
    assert serde.serialize(order(amount=7)) == data


# In memory


def test_registries_in_memory_are_shared_by_name(stand_in: StandIn) -> None:
    of = RegistrySettings("mock://shared-by-name")
    writer = avro(SchemaRegistry.of(of, register=False), "orders-value", ORDER)
    reader = avro(SchemaRegistry.of(of, register=False), "orders-value")
    assert reader.deserialize(writer.serialize({"amount": 7})) == {"amount": 7}
    other = avro(SchemaRegistry("mock://another"), "orders-value")
    with pytest.raises(SerializationError, match="has no schema with their id"):
        other.deserialize(writer.serialize({"amount": 7}))


def test_replaced_certificates_are_used(tmp_path: Path) -> None:
    """Kubernetes replaces the files of a Secret, and a client has read the former ones for good."""
    file = tmp_path / "ca.pem"
    shutil.copy(certifi.where(), file)
    registry = SchemaRegistry("https://127.0.0.1:1", {"ssl.ca.location": str(file)})
    first = shared_client(registry)
    assert shared_client(registry) is first
    shutil.copy(certifi.where(), tmp_path / "new")
    (tmp_path / "new").rename(file)
    second = shared_client(registry)
    assert second is not first
    assert shared_client(registry) is second


def test_a_proxy_that_cannot_be_used_is_an_error_of_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(ConfigError, match="SOCKS proxy"):
        client_of(SchemaRegistry("http://127.0.0.1:1"))
