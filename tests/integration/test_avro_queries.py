"""Queries over Avro: columns from the registry, what Spark makes of values, and results in Avro."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafka_pipeline import schema_registry
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.record import Record
from kafka_pipeline.streams.schema_registry import SchemaRegistry
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.testing.driver import TopologyTestDriver
from tests.in_process import run_pipeline
from tests.schema_registry import require_packages, standing_in
from tests.small_config import SMALL_CONFIG

ROOT = Path(__file__).parents[2]

# With the fixture, these run where Spark does: see tests/scheduling.py.
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("queries")]

CONFIG = f'{SMALL_CONFIG}schema_registry: {{{{url: "{{url}}"}}}}\n'


class Job:
    """A registry, its subjects, and the files of a job that uses it."""

    def __init__(self, folder: Path, pipeline: str, url: str = "") -> None:
        require_packages()
        self.registry = SchemaRegistry(url or f"mock://{uuid4()}", {"max.retries": 0})
        self._files = folder / "config.yaml", folder / "pipeline.yaml"
        self._files[0].write_text(CONFIG.format(url=self.registry.url))
        self._files[1].write_text(pipeline)

    def serde(self, subject: str, schema: Any) -> Serde[Any]:
        """Return a serde whose schema is registered."""
        serde = schema_registry.avro(self.registry, subject, json.dumps(schema))
        client = schema_registry.schema_registry.shared_client(self.registry)  # type: ignore[attr-defined]
        from confluent_kafka.schema_registry import Schema

        client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))
        return serde

    def driver(self) -> TopologyTestDriver:
        return TopologyTestDriver.of_pipeline(*self._files)


def record(name_: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name_,
        "fields": [{"name": field, "type": type_} for field, type_ in fields.items()],
    }


def nullable(type_: Any) -> list[Any]:
    return ["null", type_]


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
ROW = record(
    "Order",
    id="long",
    price=nullable(MONEY),
    at=nullable(MICROS),
    local=nullable(LOCAL),
    day=nullable(DATE),
    ratio=nullable("double"),
    small=nullable("float"),
    raw=nullable("bytes"),
    paid=nullable("boolean"),
    tags=nullable({"type": "array", "items": nullable("string")}),
    prices=nullable({"type": "map", "values": MONEY}),
    buyer=nullable(record("Buyer", name=nullable("string"), since=nullable(DATE))),
    either=["null", "long", "string", record("Other", x="int")],
    kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
)


def test_each_value_goes_through_a_query_as_it_is(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        "processors:\n- {id: Q, type: sql, format: avro, to: [sink], query: 'SELECT "
        f"{', '.join(each['name'] for each in ROW['fields'])} FROM input'}}\n",
    )
    rows = job.serde("in-value", ROW)
    copies = job.serde("out-value", ROW)
    nothing = dict.fromkeys([each["name"] for each in ROW["fields"]])
    full: dict[str, Any] = {
        "id": 2**63 - 1,
        "price": Decimal("-9999999999999999.9999"),
        "ratio": 0.1,
        "small": 0.10000000149011612,
        "raw": b"\xff\0",
        "paid": False,
        "kind": "B",
        "tags": ["x", None, 'ä"\n'],
        "prices": {"a": Decimal("0.0001")},
        "buyer": {"name": None, "since": None},
        "either": ("Other", {"x": 7}),
    }
    sent: list[dict[str, Any]] = [
        {**nothing, **full},
        {**nothing, "id": 1, "kind": "A", "either": 5, "ratio": float("inf")},
        {**nothing, "id": 2, "kind": "A", "either": "text", "buyer": {"name": "ann"}},
    ]
    with job.driver() as driver:
        given = driver.create_input_topic("in", value_serde=rows)
        output = driver.create_output_topic("out", value_serde=copies)
        for row in sent:
            given.pipe_input(None, row)
            wanted = {**row, "either": row["either"][1] if row["id"] > 9 else row["either"]}
            if row["buyer"]:
                wanted["buyer"] = {"since": None, **row["buyer"]}
            ((_, found),) = output.read_key_values()
            assert found == wanted


@pytest.mark.parametrize("text", ["2024-02-29T23:59:59.999999Z", "0001-01-01T00:00:00Z"])
def test_times_keep_their_microseconds(text: str, tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        "processors:\n- {id: Q, type: sql, format: avro, to: [sink], query: "
        "'SELECT at, local, day, CAST(at AS STRING) AS shown FROM input'}\n",
    )
    at = datetime.fromisoformat(text)
    fields = {"at": MICROS, "local": LOCAL, "day": DATE}
    rows = job.serde("in-value", record("T", **fields))
    copies = job.serde("out-value", record("T", **fields, shown="string"))
    row = {
        "at": at,
        "local": at.replace(tzinfo=None, microsecond=at.microsecond // 1000 * 1000),
        "day": date(at.year, at.month, at.day),
    }
    with job.driver() as driver:
        driver.create_input_topic("in", value_serde=rows).pipe_input(None, row)
        output = driver.create_output_topic("out", value_serde=copies)
        ((_, found),) = output.read_key_values()
    shown = found.pop("shown")
    assert found == row
    assert shown == text.replace("T", " ").removesuffix("Z")


SHOP = """
sources:
  orders: {topic: orders}
  plain: {topic: plain, value: json}
  people: {topic: people, key: avro}
  changes: {topic: shop.public.prices, format: debezium}
sinks: {named: named, totals: totals, rows: rows}
processors:
- id: Named
  type: sql
  format: avro
  from: [orders]
  tables: {people: {topic: people, global: true}}
  query: SELECT o.key, o.id, p.name, price * 2 AS twice FROM orders o JOIN people p ON o.who = p.id
  to: [named, Again]
- id: Again
  type: sql
  format: json
  schema: "id INT, name STRING, twice DECIMAL(22, 4)"
  query: SELECT CAST(twice AS STRING) AS key, name FROM input
  to: [rows]
- id: Totals
  type: sql
  format: avro
  from: [changes]
  query: SELECT who AS key, who, sum(price) AS price, count(*) AS n FROM changes GROUP BY who
  out_value: {avro: {subject: of-totals}}
  to: [totals]
"""


def test_sources_tables_and_changes_are_read_and_sinks_written(tmp_path: Path) -> None:
    job = Job(tmp_path, SHOP)
    orders = job.serde("orders-value", record("O", id="int", who="int", price=MONEY))
    ids = job.serde("people-key", record("Key", id="int"))
    people = job.serde("people-value", record("P", id="int", name="string"))
    named = job.serde("named-value", record("N", id="int", name="string", twice={**MONEY,
        "precision": 24}))  # fmt: skip
    totals = job.serde("of-totals", record("T", who="string", price=MONEY, n="long"))
    key = job.serde("shop.public.prices-key", record("Key", id="int"))
    value = record("Value", id="int", who="string", price=MONEY)
    changes = job.serde(
        "shop.public.prices-value",
        record("Envelope", op="string", before=nullable(value), after=nullable("Value"),
               source=record("Source", connector="string", lsn="long")),
    )  # fmt: skip
    with job.driver() as driver:
        given = driver.create_input_topic("people", ids, people)
        given.pipe_input({"id": 1}, {"id": 1, "name": "ann"})
        order = {"id": 7, "who": 1, "price": Decimal("0.0001")}
        driver.create_input_topic("orders", value_serde=orders).pipe_input(b"k", order)
        assert driver.create_output_topic("named", value_serde=named).read_key_values() == [
            (b"k", {"id": 7, "name": "ann", "twice": Decimal("0.0002")})
        ]
        assert driver.create_output_topic("rows").read_key_values() == [
            (b"0.0002", b'{"name":"ann"}')
        ]
        topic = driver.create_input_topic("shop.public.prices", key, changes)
        row = {"id": 1, "who": "ann", "price": Decimal("1.5000")}
        for number, (op, after) in enumerate(
            [("c", row), ("u", {**row, "price": Decimal("2.2500")}), ("u", {**row, "who": "bob"})]
        ):
            source = {"connector": "postgresql", "lsn": number}
            topic.pipe_input(
                {"id": 1}, {"op": op, "before": None, "after": after, "source": source}
            )
        topic.pipe_input({"id": 1}, None)
        output = driver.create_output_topic("totals", value_serde=totals)
        money = Decimal
        assert output.read_key_values() == [
            (b"ann", {"who": "ann", "price": money("1.5000"), "n": 1}),
            (b"ann", {"who": "ann", "price": money("2.2500"), "n": 1}),
            (b"ann", None),
            (b"bob", {"who": "bob", "price": money("1.5000"), "n": 1}),
            (b"bob", None),
        ]


def test_misfits_are_dead_letters_and_a_registry_that_is_away_is_waited_for(
    tmp_path: Path,
) -> None:
    pipeline = (
        "processors:\n- {id: Q, type: sql, format: avro, on_error: dead_letter, to: [sink],\n"
        '   query: "SELECT amount / part AS share, part FROM input"}\n'
    )
    with standing_in() as stand_in:
        job = Job(tmp_path, pipeline, stand_in.url)
        rows = job.serde("in-value", record("R", amount="int", part="int"))
        shares = job.serde("out-value", record("S", share="double", part="int"))
        other = job.serde("other-value", record("R", amount="string", part="int"))
        newer = record("R", amount="int", part="int", more="string")
        with job.driver() as driver:
            topic = driver.create_input_topic("in")
            output = driver.create_output_topic("out", value_serde=shares)
            letters = driver.create_output_topic("Q_dead_letter")
            topic.pipe_input(None, rows.serialize({"amount": 1, "part": 2}))
            wrong = other.serialize({"amount": "x", "part": 2})
            topic.pipe_input(b"k", wrong)
            topic.pipe_input(None, rows.serialize({"amount": 1, "part": 4}))
            assert [value for _, value in output.read_key_values()] == [
                {"share": 0.5, "part": 2},
                {"share": 0.25, "part": 4},
            ]
            (letter,) = letters.read_records()
            assert (letter.key, letter.value) == (b"k", wrong)
            reason = str(dict(letter.headers)["__streams.errors.message"])
            assert 'id 3 wrote them, version 1 reads them: field "amount" is string' in reason
            data = job.serde("in-value", newer).serialize({"amount": 1, "part": 8, "more": ""})
            stand_in.status = 503
            with pytest.raises((UnavailableError, StreamsError), match="HTTP status 503"):
                topic.pipe_input(None, data)
            stand_in.status = 0
            topic.pipe_input(None, data)
            values = [value for _, value in output.read_key_values()]
            assert {"share": 0.125, "part": 8} in values
            assert letters.read_records() == []


def only(names: Collection[str], **values: Any) -> dict[str, Any]:
    return {name: values[name] for name in names}


IN_BATCHES = (
    "processors:\n- {id: Q, type: sql, format: avro, on_error: dead_letter, to: [sink],\n"
    '   query: "SELECT key, id, 2 * n AS n, name, COLUMNS FROM input"}\n'
)


@pytest.mark.parametrize("has_others", [False, True])
@pytest.mark.parametrize("read", [["is_new"], ["is_new", "ratio", "day", "at"]])
def test_a_batch_gives_what_its_records_give_one_by_one(
    read: list[str], has_others: bool, tmp_path: Path
) -> None:
    fields = {
        "id": "long",
        "n": nullable("int"),
        "name": nullable("string"),
        "ratio": "double",
        "day": DATE,
        "at": MICROS,
        "is_new": "boolean",
    }
    job = Job(tmp_path, IN_BATCHES.replace("COLUMNS", ", ".join(read)))
    fields = {name: fields[name] for name in ("id", "n", "name", *read)}
    schema = record("R", **fields)
    results = record("S", **{**fields, "n": nullable("long")})
    for each in (schema, results):
        for field in each["fields"]:
            if isinstance(field["type"], list):
                field["default"] = None
    older = job.serde("in-value", record("R", **{**fields, "more": "string"}))
    rows = job.serde("in-value", schema)
    copies = job.serde("out-value", results)
    data: list[bytes | None] = [
        rows.serialize(
            only(
                fields,
                id=number,
                n=None if number % 5 == 0 else number,
                name=None if number % 3 == 0 else f'ä"{number}\n',
                ratio=float("nan") if has_others and number == 7 else number / 8,
                day=date(2024, 2, 29),
                at=datetime(2024, 2, 29, 12, 0, 0, number, UTC),
                is_new=number % 2 == 0,
            )
        )
        for number in range(80)
    ]
    if has_others:
        data[10] = None
        values = {"id": 1, "n": 1, "name": "x", "is_new": True, "ratio": 1.0}
        moment = datetime(2024, 3, 1, tzinfo=UTC)
        data[20] = older.serialize(
            {**only(fields, **values, day=moment.date(), at=moment), "more": "y"}
        )
        data[30] = (data[30] or b"") + b"\0"
    found: list[Any] = []
    for is_batch in (False, True):
        with job.driver() as driver:
            topic = driver.create_input_topic("in")
            piped = [Record(b"k", value, 1_000, ()) for value in data]
            if is_batch:
                topic.pipe_batch(piped)
            else:
                topic.pipe_records(piped)
            output = driver.create_output_topic("out").read_key_values()
            letters = driver.create_output_topic("Q_dead_letter").read_key_values()
        found.append((output, letters))
    assert found[0] == found[1]
    assert len(found[0][1]) == (2 if has_others else 0)
    first = copies.deserialize(found[0][0][1][1])
    assert (first["id"], first["n"], first["name"]) == (1, 2, 'ä"1\n')


COMPARED = """
sources: {orders: orders, people: people}
sinks: {rows: rows, days: days, joined: joined, top: top, late: late}
processors:
- id: Rows
  type: sql
  format: avro
  from: [orders]
  query: SELECT key, id, price, who AS whom, NULL AS note, at FROM orders
  to: [rows, Table]
- {id: Table, type: table, format: delta, path: lake/t, schema: "id INT NOT NULL, at DATE"}
"""
MORE_COMPARED = """\
- id: Days
  type: sql
  format: avro
  from: [orders]
  query: SELECT who AS key, calendar_window(timestamp, '1 month', 'UTC').start AS month,
    count(*) AS n FROM orders GROUP BY who, calendar_window(timestamp, '1 month', 'UTC')
  emit: on_close
  grace: 1 h
  late_to: late
  to: [days]
- id: Joined
  type: sql
  format: avro
  from: [orders, people]
  ttl: 1 h
  query: SELECT key, name, count(*) AS n FROM (SELECT o.key, name FROM orders o JOIN people p
    ON o.key = p.key) GROUP BY key, name
  to: [joined]
- id: Frame
  type: dataframe
  format: avro
  from: [orders]
  function: tests.user_code.frames:counted
  group_by: {key: true}
  out_value: {avro: {schema: top.avsc, register: true}}
  to: [top]
"""
OF_ROWS = 'Rows": its results do not fit version 1 of subject "rows-value": '
MISFITS = [
    f'7:11: "{OF_ROWS}column "id" is INT, and the schema has string',
    f'7:11: "{OF_ROWS}column "whom" is not a field of the schema, did you mean "who"?',
    f'7:11: "{OF_ROWS}column "note" is always null, which the schema does not allow',
    f'7:11: "{OF_ROWS}field "who" has no column and no default',
    '11:65: "Table": the results of "Rows" do not fit: column "at" is TIMESTAMP, and the table has '
    "DATE",
]
OF_JOINED = 'Joined": its results do not fit version 1 of subject "joined-value": '
MORE_MISFITS = [
    '14:11: "Days": its results do not fit version 1 of subject "days-value": column "month" is '
    "TIMESTAMP, and the schema has long",
    f'24:11: "{OF_JOINED}column "n" is BIGINT, and the schema has string',
    f'24:11: "{OF_JOINED}field "more" has no column and no default',
    '36:14: "Frame": its results do not fit the schema in its file: column "count" is BIGINT, and '
    "the schema has string",
]


@pytest.mark.parametrize(
    ("command", "is_whole"),
    [
        ("validate", False),
        pytest.param("validate", True, marks=pytest.mark.long),
        pytest.param("plan", True, marks=pytest.mark.long),
    ],
)
def test_results_are_compared_with_schemas_and_tables_before_the_job_starts(
    command: str, is_whole: bool, tmp_path: Path
) -> None:
    with standing_in() as stand_in:
        job = Job(tmp_path, COMPARED + MORE_COMPARED * is_whole, stand_in.url)
        config, file = tmp_path / "config.yaml", str(tmp_path / "pipeline.yaml")
        config.write_text(
            config.read_text() + f"tables: {{write_paths: [lake]}}\npython_path: ['{ROOT}']\n"
            "modules: [tests.user_code]\n"
        )
        job.serde("orders-value", record("O", id="int", who="string", price=MONEY, at=MICROS))
        job.serde("people-value", record("P", name="string"))
        rows = {"id": "string", "price": MONEY, "who": "string", "note": "int", "at": MICROS}
        job.serde("rows-value", record("R", **rows))
        job.serde("days-value", record("D", month="long", n="long"))
        job.serde("joined-value", record("J", name="string", n="string", more="string"))
        (tmp_path / "top.avsc").write_text(json.dumps(record("T", count="string")))
        found = run_pipeline(command, str(config), file, code=2).replace(f"{file}:", "")
    assert sorted(found.splitlines()) == sorted(MISFITS + MORE_MISFITS * is_whole)


def test_schema_that_a_query_gives_is_registered_and_takes_its_results(tmp_path: Path) -> None:
    query = (
        "SELECT id AS key, count(*) AS n, sum(price) AS total, max(at) AS at, "
        "collect_list(struct(day, tags)) AS each FROM input GROUP BY id"
    )
    text = f"- {{id: By.id, type: sql, format: avro, to: [sink], query: '{query}'}}\n"
    fields = {"price": nullable(MONEY), "at": MICROS, "day": DATE}
    tags = {"type": "array", "items": nullable("string")}
    from datetime import UTC, date, datetime

    at = datetime(2024, 2, 29, 23, 59, 59, 999999, UTC)
    with standing_in() as stand_in:
        job = Job(tmp_path, text, stand_in.url)
        rows = job.serde("in-value", record("R", id="int", **fields, tags=tags))
        files = [str(tmp_path / "config.yaml"), str(tmp_path / "pipeline.yaml")]
        shown = run_pipeline("topic", "schema", *files, "out", "--register")
        assert shown.splitlines()[-1] == 'registered in subject "out-value" with id 2'
        schema = json.loads(shown[: shown.rindex("}") + 1])
        assert schema["name"] == "By_id"
        assert schema["fields"][0] == {"name": "n", "type": "long"}
        again = run_pipeline("topic", "schema", *files, "out", "--register", code=2)
        assert 'subject "out-value" already has a schema, of version 1' in again
        with job.driver() as driver:
            row = {"id": 1, "price": Decimal("0.0001"), "at": at, "day": date(1, 1, 1)}
            topic = driver.create_input_topic("in", value_serde=rows)
            topic.pipe_input(None, {**row, "tags": ["a", None]})
            out = schema_registry.avro(job.registry, "out-value")
            output = driver.create_output_topic("out", value_serde=out)
            ((key, found),) = output.read_key_values()
        each = {"day": date(1, 1, 1), "tags": ["a", None]}
        total = Decimal("0.0001")
        assert (key, found) == (b"1", {"n": 1, "total": total, "at": at, "each": [each]})
        wrong = run_pipeline("topic", "schema", *files, "in", code=2)
    assert 'topic "in": no query writes it, and a schema is that of one' in wrong
