"""Change events of SQL Server and MongoDB, in the form that Debezium's documentation says.

No server of either was run: the fields are those of its pages and of the connectors' sources.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.streams.debezium import TOMBSTONE, Change, EnvelopeError, read_change, row_text
from kafka_pipeline.streams.kept_changes import Kept, step


def change(event: dict[str, Any], schema: Any = None) -> Change:
    found = read_change(json.dumps({"schema": schema, "payload": event}).encode())
    assert found is not None
    return found


def rows(*changes: Change) -> list[Any]:
    """Return what the table gets: rows, None for deletions, and "" for nothing."""
    kept: Kept | None = None
    found: list[Any] = []
    for each in changes:
        result = step(kept, each)
        kept = result.kept
        row = None if result.row is None else json.loads(result.row)
        found.append(row if result.is_passed else "")
    return found


# --- SQL Server ---

BEFORE_LSN = {"change_lsn": None, "commit_lsn": "00000025:00000d98:00a2", "event_serial_no": None}


def of_sql_server(
    op: str, name: str | None, commit: str = "", number: str = "", serial: int = 1
) -> dict[str, Any]:
    """Return an event; without a commit, it is one of the snapshot."""
    lsn = {
        "change_lsn": f"{commit}:{number}",
        "commit_lsn": f"{commit}:0007",
        "event_serial_no": serial,
    }
    row = {"id": 1005, "name": name}
    return {
        "before": None if op in "cr" else {"id": 1005, "name": "?"},
        "after": None if op == "d" else row,
        "source": {
            "version": "3.6.1.Final",
            "connector": "sqlserver",
            "name": "server1",
            "ts_ms": 1559729468470,
            "snapshot": "false" if commit else "true",
            "db": "testDB",
            "schema": "dbo",
            "table": "customers",
            **(lsn if commit else BEFORE_LSN),
        },
        "op": op,
        "ts_ms": 1559729471739,
        "transaction": None,
    }


def test_changes_of_sql_server_count_once_in_their_order() -> None:
    read = change(of_sql_server("r", "ann"))
    created = change(of_sql_server("c", "bob", "00000027:00000758", "0003"))
    # An update is two rows of the table of changes, so it has the second number.
    updated = change(of_sql_server("u", "carl", "00000027:00000ac0", "0002", 2))
    # Another primary key is a deletion and an insert, at one change_lsn.
    removed = change(of_sql_server("d", None, "00000027:00000db0", "0005", 1))
    put_back = change(of_sql_server("c", "dora", "00000027:00000db0", "0005", 2))
    log = [read, created, updated, removed, put_back]
    names = [{"id": 1005, "name": name} for name in ("ann", "bob", "carl")]
    first = [*names, None, {"id": 1005, "name": "dora"}]
    assert rows(*log) == first
    assert rows(*log, *log[1:]) == [*first, "", "", "", ""]


def test_columns_of_sql_server_have_their_digits() -> None:
    columns = {
        "price": ("org.apache.kafka.connect.data.Decimal", "bytes", "DDk=", Decimal("0.3129")),
        "at": ("io.debezium.time.NanoTimestamp", "int64", 1, "1970-01-01T00:00:00.000000001"),
        "took": ("io.debezium.time.NanoTime", "int64", 100, "00:00:00.0000001"),
        "placed": ("io.debezium.time.ZonedTimestamp", "string", *["2024-01-01T01:00:00+01:00"] * 2),
        "raw": ("", "bytes", "AP8=", "AP8="),
    }
    fields = [
        {"field": name, "name": of, "type": type_, "parameters": {"scale": "4"}}
        for name, (of, type_, *_) in columns.items()
    ]
    schema = {"fields": [{"field": "after", "type": "struct", "fields": fields}]}
    event = of_sql_server("r", None)
    event["after"] = {name: given for name, (_, _, given, _) in columns.items()}
    assert change(event, schema).row == {name: read for name, (*_, read) in columns.items()}


# --- MongoDB ---

SOURCE = {
    "version": "3.6.1.Final",
    "connector": "mongodb",
    "name": "fulfillment",
    "ts_ms": 1558965508000,
    "snapshot": "false",
    "db": "inventory",
    "rs": "rs0",
    "collection": "customers",
    "ord": 31,
    "lsid": None,
    "txnNumber": None,
    "wallTime": None,
}
UPDATE = {
    "removedFields": None,
    "updatedFields": '{"first_name": "Anne Marie"}',
    "truncatedArrays": None,
}


def of_mongodb(op: str, after: str | None, update: Any = None) -> dict[str, Any]:
    """Return an event; `after` is a document as text."""
    return {
        "before": None,
        "after": after,
        "updateDescription": update,
        "source": SOURCE,
        "op": op,
        "ts_ms": 1558965515240,
        "transaction": None,
    }


DOCUMENTS = {
    # As the settings of json.serialization.mode write it: legacy and strict, extended, relaxed.
    "legacy": (
        '{"_id" : {"$oid" : "596e275826f08b2730779e1f"},"visits" : {"$numberLong" : "1004"},'
        '"age" : 7,"score" : 1.5,"price" : {"$numberDecimal" : "1.10"},'
        '"at" : {"$date" : 1783101585729},"raw" : {"$binary" : "AP8=","$type" : "00"},'
        '"tags" : [{"n" : {"$numberLong" : "7"}}, null],"none" : {}}'
    ),
    "extended": (
        '{"_id" : {"$oid" : "596e275826f08b2730779e1f"},"visits" : {"$numberLong" : "1004"},'
        '"age" : {"$numberInt" : "7"},"score" : {"$numberDouble" : "1.5"},'
        '"price" : {"$numberDecimal" : "1.10"},'
        '"at" : {"$date" : {"$numberLong" : "1783101585729"}},'
        '"raw" : {"$binary" : {"base64" : "AP8=","subType" : "00"}},'
        '"tags" : [{"n" : {"$numberLong" : "7"}}, null],"none" : {}}'
    ),
    "relaxed": (
        '{"_id" : {"$oid" : "596e275826f08b2730779e1f"},"visits" : 1004,"age" : 7,"score" : 1.5,'
        '"price" : {"$numberDecimal" : "1.10"},"at" : {"$date" : "2026-07-03T17:59:45.729Z"},'
        '"raw" : {"$binary" : {"base64" : "AP8=","subType" : "00"}},'
        '"tags" : [{"n" : 7}, null],"none" : {}}'
    ),
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_of_mongodb_is_a_row_of_plain_values(document: str) -> None:
    found = change(of_mongodb("u", document, UPDATE))
    assert found.position is None
    assert found.row == {
        "_id": "596e275826f08b2730779e1f",
        "visits": 1004,
        "age": 7,
        "score": Decimal("1.5"),
        "price": Decimal("1.10"),
        "at": "2026-07-03T17:59:45.729Z",
        "raw": "AP8=",
        "tags": [{"n": 7}, None],
        "none": {},
    }
    row = serdes.debezium.deserialize(json.dumps(of_mongodb("c", document)).encode())
    assert row["_id"] == "596e275826f08b2730779e1f"


def test_values_that_json_does_not_have_stay_or_are_null() -> None:
    kept = '{"$regularExpression":{"pattern":"a","options":""}}'
    document = f'{{"r":{kept},"d":{{"$numberDecimal":"NaN"}},"m":{{"$minKey":1}}}}'
    found = change(of_mongodb("c", document)).row
    assert found == {"r": json.loads(kept), "d": None, "m": {"$minKey": 1}}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_doubles_that_json_does_not_have_are_text(number: str) -> None:
    document = f'{{"x":{{"$numberDouble":"{number}"}},"y":{{"$numberDouble":"1.5"}}}}'
    row = change(of_mongodb("c", document)).row
    assert row is not None
    assert json.loads(row_text(row)) == {"x": number, "y": 1.5}


def test_documents_are_deleted_and_repeated() -> None:
    first = change(of_mongodb("c", '{"n":1}'))
    second = change(of_mongodb("u", '{"n":2}', UPDATE))
    removed = change(of_mongodb("d", None))
    assert rows(first, second, removed, TOMBSTONE) == [{"n": 1}, {"n": 2}, None, ""]
    # There are no positions: the table is right again after the last change.
    assert rows(first, second, first, second) == [{"n": 1}, {"n": 2}, {"n": 1}, {"n": 2}]


def test_an_update_without_its_document_is_refused() -> None:
    for after in ({}, {"after": None}):
        event = {**of_mongodb("u", None, UPDATE), **after}
        with pytest.raises(EnvelopeError, match=r"change_streams_update_full.*post_image"):
            change(event)
