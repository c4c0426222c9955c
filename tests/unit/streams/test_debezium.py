"""What change events of Debezium say, and what each of them comes to after others of its key."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import Decimal, localcontext
from random import Random
from typing import Any

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.common.kafka import connect_values
from kafka_pipeline.streams.debezium import (
    TOMBSTONE,
    Change,
    EnvelopeError,
    read_change,
    read_key,
    row_text,
)
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.kept_changes import KEPT, Kept, step
from tests.tiers import long_but_the_first

PLACEHOLDER = "__debezium_unavailable_value"


def event(op: str, after: Any = None, lsn: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return an envelope of PostgreSQL's connector."""
    snapshot = "true" if op == "r" else "false"
    source = {"connector": "postgresql", "db": "shop", "snapshot": snapshot, "lsn": lsn}
    return {"before": None, "after": after, "source": source, "op": op, "ts_ms": 1, **fields}


def change(op: str, after: Any = None, lsn: int | None = None) -> Change:
    found = read_change(json.dumps(event(op, after, lsn)).encode())
    assert found is not None
    return found


def change_at(source: dict[str, Any], op: str, after: Any = None) -> Change:
    found = read_change(json.dumps({"op": op, "after": after, "source": source}).encode())
    assert found is not None
    return found


def with_schema(envelope: Any, columns: Iterable[dict[str, Any]]) -> bytes:
    """Return a value as JsonConverter writes it with `schemas.enable`."""
    row = {"type": "struct", "optional": True, "name": "s.t.Value", "fields": [*columns]}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}]
    fields.append({"type": "string", "optional": False, "field": "op"})
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "s.t.Envelope"}
    return json.dumps({"schema": schema, "payload": envelope}).encode()


def column(field: str, name: str, type_: str = "int64", **fields: Any) -> dict[str, Any]:
    return {"type": type_, "optional": True, "name": name, "version": 1, "field": field, **fields}


def unscaled(number: int) -> str:
    size = number.bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


# --- single events ---


def test_a_row_keeps_all_its_digits_and_members() -> None:
    after = '{"id":1,"price":0.12345678901234567890,"big":9223372036854775807,"o":{"a":[1,null]}}'
    value = f'{{"op":"c","after":{after},"source":{{"connector":"x"}},"new":[]}}'.encode()
    found = read_change(value)
    assert found is not None
    assert found.row is not None
    assert row_text(found.row).decode() == after
    assert found.position is None


@pytest.mark.parametrize("value", [None, b"null", with_schema(None, [])])
def test_no_value_and_no_payload_are_tombstones(value: bytes | None) -> None:
    assert read_change(value) is TOMBSTONE


@pytest.mark.parametrize(
    ("schema", "given", "read"),
    [
        (
            {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            unscaled(-12345),
            Decimal("-123.45"),
        ),
        (
            {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}},
            unscaled(10**40),
            Decimal(10**40),
        ),
        ({"name": "org.apache.kafka.connect.data.Decimal"}, 5, 5),
        (
            {"name": "io.debezium.data.VariableScaleDecimal"},
            {"scale": 3, "value": unscaled(1500)},
            Decimal("1.500"),
        ),
        ({"name": "io.debezium.time.Date"}, 19723, "2024-01-01"),
        ({"name": "io.debezium.time.Date"}, -1, "1969-12-31"),
        ({"name": "io.debezium.time.Timestamp"}, 1704067200123, "2024-01-01T00:00:00.123"),
        ({"name": "io.debezium.time.MicroTimestamp"}, -1, "1969-12-31T23:59:59.999999"),
        ({"name": "io.debezium.time.NanoTimestamp"}, 10**9 + 1, "1970-01-01T00:00:01.000000001"),
        ({"name": "org.apache.kafka.connect.data.Timestamp"}, 0, "1970-01-01T00:00:00"),
        ({"name": "io.debezium.time.MicroTime"}, 86_399_000_001, "23:59:59.000001"),
        ({"name": "io.debezium.time.Time"}, 86_400_000, "24:00:00"),
        ({"name": "io.debezium.time.MicroTime"}, -1_500_000, "-00:00:01.5"),
        (
            {"name": "io.debezium.time.ZonedTimestamp"},
            "2024-01-01T00:00:00Z",
            "2024-01-01T00:00:00Z",
        ),
        (
            {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}},
            [0, None],
            ["1970-01-01", None],
        ),
        ({"name": "io.debezium.data.Json"}, '{"a": 1}', '{"a": 1}'),
        ({"name": "io.debezium.time.Date"}, None, None),
    ],
)
def test_a_schema_says_what_a_number_is(schema: dict[str, Any], given: Any, read: Any) -> None:
    field = {"type": "int64", "optional": True, "field": "x", **schema}
    value = with_schema(event("c", {"id": 1, "x": given}), [field])
    found = read_change(value)
    assert found is not None
    assert found.row == {"id": 1, "x": read}
    (again,) = {read_change(value).row["x"].__class__ for _ in range(2)}  # type: ignore[union-attr, index]
    assert again is read.__class__


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"{", "the value cannot be read: Input data was truncated"),
        (b'{"op":"c","after":{"a":NaN}}', "the value cannot be read: JSON is malformed"),
        (b"[1]", r"the value cannot be read: Expected `object \| null`, got `array`"),
        (b'{"op":"c","after":{"a":"\xff"}}', "the value cannot be read: "),
        (b"[" * 100_000, "the value cannot be read: "),
        (b'{"id":1}', "no field op: .* ExtractNewRecordState .* changelog: true"),
        (b'{"schema":null,"payload":{"id":1}}', "the value has no field op"),
        (b'{"op":"x"}', "op is none of c, u, d, r, t and m"),
        (b'{"op":1}', r"Expected `str \| null`, got `int` - at `\$.op`"),
        (b'{"op":"t","after":null}', "op is t: a TRUNCATE has removed all rows"),
        (b'{"op":"u","after":null}', "op is u, but after is not an object"),
        (b'{"op":"c","after":"{"}', "after is text that is not JSON"),
        (b'{"op":"c","after":"7"}', "after is text, but not an object"),
        (b'{"op":"c","after":"{\\"_id\\":{\\"$numberLong\\":[]}}"}', r"\$numberLong has a value"),
        (
            b'{"op":"u","after":null,"updateDescription":{"updatedFields":"{}"}}',
            "capture.mode to change_streams_update_full",
        ),
        (b'{"op":"d","source":{"connector":"postgresql","lsn":"7"}}', "source.lsn is text"),
        (b'{"op":"d","source":{"connector":"mysql","pos":"7"}}', r"at `\$.source.pos`"),
        (b'{"schema":{"fields":1},"payload":{"op":"c","after":{}}}', "the schema is not that of"),
        (
            with_schema(event("c", {"at": 10**18}), [column("at", "io.debezium.time.Timestamp")]),
            "^after.at: the time is not between the years 1 and 9999$",
        ),
        (
            with_schema(
                event("c", {"n": "?"}), [column("n", "org.apache.kafka.connect.data.Decimal")]
            ),
            "^after.n: the decimal is not in base64$",
        ),
        (
            with_schema(event("c", {"d": "x"}), [column("d", "io.debezium.time.Date")]),
            "^after.d: ",
        ),
        (
            with_schema(
                event("c", {"n": {"scale": 2}}),
                [column("n", "io.debezium.data.VariableScaleDecimal", "struct")],
            ),
            "^after.n: the value does not have the form of its type$",
        ),
    ],
)
def test_what_is_no_change_of_a_row_is_refused(value: bytes, words: str) -> None:
    with pytest.raises(EnvelopeError, match=words):
        read_change(value)


@pytest.mark.parametrize(
    "value",
    [
        {"status": "BEGIN", "id": "571:1", "event_count": None, "data_collections": None},
        {"status": "END", "id": "571:1", "event_count": 2},
        {"op": "m", "ts_ms": 1, "source": {}, "message": {"prefix": "p", "content": "YQ=="}},
        {"source": {}, "databaseName": "shop", "ddl": "ALTER TABLE t …", "tableChanges": []},
    ],
)
def test_events_about_no_row_are_known(value: dict[str, Any]) -> None:
    assert read_change(json.dumps(value).encode()) is None
    assert read_change(json.dumps({"schema": {}, "payload": value}).encode()) is None


def test_a_key_is_the_same_with_and_without_its_schema() -> None:
    schema = '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}]}'
    with_one = f'{{"schema":{schema},"payload":{{"id":7}}}}'.encode()
    assert read_key(with_one) == read_key(b'{"id":7}') == b'{"id":7}'


@pytest.mark.parametrize(
    "key",
    [
        {"schema": "public", "name": "orders"},
        {"schema": "public", "payload": "x"},
        {"id": 7, "payload": "x"},
        {"payload": {"id": 7}},
    ],
)
def test_columns_of_a_key_may_be_called_like_the_parts_of_an_envelope(key: dict[str, Any]) -> None:
    text = json.dumps(key, separators=(",", ":")).encode()
    assert read_key(text) == text
    assert serdes.debezium_key.deserialize(text) == key
    with_one = b'{"schema":{"type":"struct"},"payload":%s}' % text
    assert read_key(with_one) == text
    assert serdes.debezium_key.deserialize(with_one) == key


def test_a_position_of_a_database_that_has_text_for_it_is_not_known() -> None:
    source = {"connector": "yugabytedb", "lsn": "1:4::0:0"}
    change = read_change(json.dumps({"op": "c", "after": {"id": 1}, "source": source}).encode())
    assert change is not None
    assert (change.row, change.position) == ({"id": 1}, None)
    with pytest.raises(EnvelopeError, match="the key cannot be read"):
        read_key(b'{"schema":')


# --- positions ---

POSTGRES = [{"connector": "postgresql", "db": "d", "lsn": lsn} for lsn in (9, 10, 100)]
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
MYSQL = [
    {"connector": "mysql", "server_id": 1, "file": f"log.{file}", "pos": pos, "gtid": gtid}
    for file, pos, gtid in (
        ("000009", 900, f"{UUID}:9"),
        ("000010", 20, f"{UUID}:10"),
        ("000010", 100, f"{UUID}:100"),
        ("1000000", 4, f"{UUID}:101"),
    )
]
MARIADB = [
    {**each, "connector": "mariadb", "gtid": f"0-{number}-{number + 9}"}
    for number, each in enumerate(MYSQL, start=1)
]
WITHOUT_GTIDS = [{**each, "gtid": None} for each in MYSQL]
SQL_SERVER = [
    {
        "connector": "sqlserver",
        "db": "d",
        "commit_lsn": f"0000002c:0000168{commit}:0003",
        "change_lsn": f"0000002c:0000168{commit}:000{number}",
        "event_serial_no": serial,
    }
    for commit, number, serial in (("8", 1, 1), ("8", 1, 2), ("8", 2, 1), ("a", 1, 1))
]


@pytest.mark.parametrize(
    "sources",
    [POSTGRES, MYSQL, MARIADB, WITHOUT_GTIDS, SQL_SERVER],
    ids=["postgres", "mysql", "mariadb", "mysql-without-gtids", "mssql"],
)
def test_later_positions_count_and_earlier_ones_are_repeated(sources: list[dict[str, Any]]) -> None:
    for at, first in enumerate(sources):
        for to, second in enumerate(sources):
            if at != to:
                assert is_repeated(first, second) is (to < at)


def test_the_same_position_is_a_repeated_change_but_in_a_binlog() -> None:
    assert all(is_repeated(each, each) for each in (POSTGRES[0], SQL_SERVER[0]))
    # MySQL gives all changes of a transaction that it has compressed one position.
    assert not any(is_repeated(each, each) for each in (MYSQL[0], MARIADB[0], WITHOUT_GTIDS[0]))


def test_positions_of_another_log_are_not_compared() -> None:
    for source, other in (
        (POSTGRES[2], {**POSTGRES[0], "db": "other"}),
        (WITHOUT_GTIDS[2], {**WITHOUT_GTIDS[0], "server_id": 2}),
        (MYSQL[2], {**MYSQL[0], "file": "replica.000001"}),
        (MYSQL[2], {**MYSQL[0], "gtid": f"4{UUID[1:]}:1"}),
        (MYSQL[2], {**MYSQL[0], "gtid": f"{UUID}:tag:1"}),
        (MARIADB[2], {**MARIADB[0], "gtid": "1-1-1"}),
        (SQL_SERVER[2], {**SQL_SERVER[0], "db": "other"}),
        (POSTGRES[2], MYSQL[0]),
        (POSTGRES[2], {"connector": "mongodb", "ord": 1, "ts_ms": 1}),
    ):
        assert not is_repeated(source, other)


def test_a_server_with_another_binlog_takes_over() -> None:
    before = {**MYSQL[0], "file": "log.000040", "pos": 9000}
    # The primary wrote this, and the replica logged it elsewhere.
    assert not is_repeated(before, {**before, "file": "log.000002", "gtid": f"{UUID}:10"})
    assert is_repeated(before, {**before, "file": "log.000002", "gtid": f"{UUID}:8"})


def test_a_group_of_servers_uses_up_numbers_that_it_had_left_free() -> None:
    before = {**MYSQL[0], "gtid": f"{UUID}:1000007"}
    assert not is_repeated(before, {**MYSQL[1], "gtid": f"{UUID}:12"})


def is_repeated(source: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether an update at the second position counts as a repeated one after the first."""
    found = step(step(None, change_at(source, "u", {})).kept, change_at(other, "u", {}))
    assert found.is_repeated is not found.is_passed
    return found.is_repeated


# --- the changes of a key, one after the other ---


def passed(*changes: Change) -> list[Any]:
    """Return what the table gets: rows, None for deletions, and "" for nothing."""
    kept: Kept | None = None
    found: list[Any] = []
    for each in changes:
        result = step(kept, each)
        kept = None if result.kept is None else KEPT.deserialize(KEPT.serialize(result.kept))
        row = None if result.row is None else json.loads(result.row)
        found.append(row if result.is_passed else ("repeated" if result.is_repeated else ""))
    return found


A, B, C = {"n": 1}, {"n": 2}, {"n": 3}


def test_a_deletion_and_its_tombstone_delete_once() -> None:
    assert passed(change("c", A, 1), change("d", None, 2), TOMBSTONE) == [A, None, ""]
    assert passed(change("d", None, 2), TOMBSTONE, change("d", None, 3)) == [None, "", ""]


def test_a_tombstone_without_its_deletion_deletes() -> None:
    assert passed(change("c", A, 1), TOMBSTONE, TOMBSTONE) == [A, None, ""]
    assert passed(TOMBSTONE) == [None]


def test_what_a_connector_repeats_counts_once() -> None:
    log = [change("c", A, 1), change("d", None, 2), TOMBSTONE, change("c", B, 3)]
    again = ["repeated", "repeated", "", "repeated"]
    assert passed(*log, *log, *log) == [A, None, "", B, *again, *again]
    assert passed(*log, *log[1:], change("u", C, 4)) == [A, None, "", B, *again[1:], C]


def test_a_deleted_row_that_is_repeated_does_not_come_back() -> None:
    log = [change("c", A, 1), change("d", None, 2), TOMBSTONE]
    assert passed(*log, *log) == [A, None, "", "repeated", "repeated", ""]


def test_a_tombstone_of_a_later_deletion_is_not_taken_for_a_repeated_one() -> None:
    log = [change("c", A, 1), change("d", None, 2), TOMBSTONE, change("c", B, 3)]
    assert passed(*log, change("d", None, 2), change("u", C, 4), TOMBSTONE)[-2:] == [C, None]


def test_a_snapshot_does_not_hide_a_transaction_that_began_before_it() -> None:
    # The transaction wrote at 5, the snapshot at 8 did not see it, and it committed at 9.
    assert passed(change("r", A, 8), change("u", B, 5)) == [A, B]
    # A change before the snapshot is still a repeated one.
    assert passed(change("c", A, 3), change("r", B, 8), change("c", A, 3)) == [A, B, "repeated"]


def test_a_snapshot_of_a_binlog_leaves_the_position_before_it() -> None:
    # The source of a snapshot has neither a server nor a GTID.
    read = {**MYSQL[1], "server_id": 0, "gtid": None, "snapshot": "last"}
    former, snapshot = change_at(MYSQL[1], "c", A), change_at({**read, "pos": 50}, "r", B)
    again, later = change_at(MYSQL[0], "u", C), change_at(MYSQL[2], "u", C)
    assert passed(former, snapshot, again, later) == [A, B, "repeated", C]


def test_a_snapshot_of_a_log_that_has_begun_again_counts() -> None:
    assert passed(change("c", A, 1000), change("r", B, 8), change("u", C, 9)) == [A, B, C]


def test_a_value_that_an_update_left_out_is_the_former_one() -> None:
    long = {"id": 1, "n": 1, "doc": "x" * 3000, "tags": ["y" * 3000]}
    update = {"id": 1, "n": 2, "doc": PLACEHOLDER, "tags": [PLACEHOLDER]}
    whole = {**long, "n": 2}
    assert passed(change("c", long, 1), change("u", update, 2))[1] == whole
    assert passed(change("r", long, 1), change("u", update, 2), change("u", update, 3))[2] == whole


def test_decimals_have_any_number_of_digits_and_a_scale_that_python_knows() -> None:
    number = Decimal("9" * 5000 + ".99")
    with localcontext(prec=6000):
        data = b"\0" + bytes.fromhex(f"{int(number * 100):x}".zfill(4200))
    assert connect_values.decimal_of(data, 2) == number
    with pytest.raises(ValueError, match="the decimal has a scale that is out of range"):
        connect_values.decimal_of(b"\1", 10**30)


@pytest.mark.parametrize(
    "placeholder",
    [
        PLACEHOLDER.encode().hex(),
        [*PLACEHOLDER.encode()],
        [(date(1970, 1, 1) + timedelta(byte)).isoformat() for byte in PLACEHOLDER.encode()],
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        {PLACEHOLDER: PLACEHOLDER},
        f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
    ],
    ids=["hexadecimal", "numbers", "dates", "uuids", "hstore", "hstore as text"],
)
def test_a_value_that_was_left_out_is_known_in_each_type(placeholder: Any) -> None:
    long = {"id": 1, "n": 1, "doc": ["y" * 3000]}
    update = {"id": 1, "n": 2, "doc": placeholder}
    assert passed(change("c", long, 1), change("u", update, 2))[1] == {**long, "n": 2}


@pytest.mark.parametrize(
    "before", [[], [change("c", {"id": 1, "doc": "short"}, 1)], [change("d", None, 1)]]
)
def test_a_value_that_is_not_known_is_refused(before: list[Change]) -> None:
    with pytest.raises(EnvelopeError, match=r"^after.doc has no value.* REPLICA IDENTITY FULL"):
        passed(*before, change("u", {"id": 1, "doc": PLACEHOLDER}, 2))


@pytest.mark.parametrize("seed", long_but_the_first(range(30), short=10))
def test_the_table_equals_the_database_whatever_the_connector_repeats(seed: int) -> None:
    """The connector starts again at random places, and goes on from an earlier position."""
    random = Random(seed)
    database: dict[int, int] = {}
    log: list[tuple[int, Change]] = []
    states: list[dict[int, int]] = []
    lsn = 0
    for _ in range(60):
        key, lsn = random.randrange(4), lsn + random.randrange(1, 3)
        if key in database and random.random() < 0.4:
            del database[key]
            log += [(key, change("d", None, lsn)), (key, TOMBSTONE)]
            states += [dict(database), dict(database)]
        else:
            op = "u" if key in database else "c"
            database[key] = lsn
            log.append((key, change(op, {"n": lsn}, lsn)))
            states.append(dict(database))
    table: dict[int, int] = {}
    kept: dict[int, Kept | None] = {}
    at = newest = 0
    while at < len(log):
        key, each = log[at]
        result = step(kept.get(key), each)
        kept[key] = result.kept
        if result.is_passed:
            table.pop(key, None)
            if result.row is not None:
                table[key] = json.loads(result.row)["n"]
        newest = max(newest, at)
        assert table == states[newest], f"seed {seed}, event {at}"
        at += 1
        if random.random() < 0.1:
            # A connector goes on with a change. Its tombstone has no position of its own.
            at = random.choice([n for n in range(at) if not log[n][1].is_tombstone])


# --- serdes ---


def test_the_serde_of_rows_reads_what_it_writes() -> None:
    value = json.dumps(event("u", {"id": 1, "price": 1.5, "name": "ä"}, 3)).encode()
    row = serdes.debezium.deserialize(value)
    assert row == {"id": 1, "price": Decimal("1.5"), "name": "ä"}
    again = serdes.debezium.serialize(row)
    assert serdes.debezium.deserialize(again) == row
    assert again == '{"op":"r","after":{"id":1,"price":1.5,"name":"ä"}}'.encode()
    deletion = json.dumps(event("d", None, 3)).encode()
    assert serdes.debezium.deserialize(deletion) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (event("m"), "it is about no row"),
        (event("t"), "op is t"),
        (event("u", {"doc": PLACEHOLDER}), "after.doc has no value"),
        ({"id": 1}, "the value has no field op"),
    ],
)
def test_the_serde_of_rows_refuses_what_is_no_row(value: Any, words: str) -> None:
    with pytest.raises(SerializationError, match=words):
        serdes.debezium.deserialize(json.dumps(value).encode())


def test_changes_are_events_without_their_schema() -> None:
    dated = event("u", {"day": 1}, 3, before={"day": 0})
    plain = serdes.debezium_changes.deserialize(json.dumps(dated).encode())
    assert plain == dated
    found = serdes.debezium_changes.deserialize(
        with_schema(dated, [column("day", "io.debezium.time.Date")])
    )
    assert found["op"] == "u"
    assert found["before"] == {"day": "1970-01-01"}
    assert found["after"] == {"day": "1970-01-02"}
    assert found["source"] == dated["source"]
    assert serdes.debezium_changes.deserialize(serdes.debezium_changes.serialize(found)) == found


def test_keys_are_the_columns_of_the_primary_key() -> None:
    with_one = b'{"schema":{"type":"struct","fields":[]},"payload":{"id":7}}'
    assert serdes.debezium_key.deserialize(with_one) == {"id": 7}
    assert serdes.debezium_key.serialize({"id": 7}) == b'{"id":7}'
