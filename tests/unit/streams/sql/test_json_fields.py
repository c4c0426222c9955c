"""JSON that Arrow reads for a query, and that text is made of, against Spark's own functions."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import batch_of, table_of
from kafka_pipeline.streams.sql.json_fields import JsonFields, read_fields
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QuerySpec

pytestmark = pytest.mark.integration

TYPES = {
    "s": ("STRING", pa.string()),
    "b": ("BOOLEAN", pa.bool_()),
    "y": ("TINYINT", pa.int8()),
    "h": ("SMALLINT", pa.int16()),
    "i": ("INT", pa.int32()),
    "l": ("BIGINT", pa.int64()),
    "d": ("DOUBLE", pa.float64()),
}
SCHEMA = pa.schema([(name, type_) for name, (_, type_) in TYPES.items()])
DDL = ", ".join(f"{name} {type_}" for name, (type_, _) in TYPES.items())
NUMBERS = [
    *("0", "-0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "32767", "32768", "-32769"),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "12345678901234567890", "9007199254740993"),
    *("1.0", "1.5", "-0.0", "0.1", "1e2", "1E+2", "1e-400", "-1e-400", "4.9e-324", "2.5e-324"),
    *("1e23", "1.7976931348623157e308", "1.7976931348623159e308", "1e400", "0.30000000000000004"),
    *("9" * 400, "1" * 1001, "0." + "3" * 500, "0." + "3" * 1001, "1" * 600 + "." + "1" * 600),
    *("01", "+1", ".5", "1.", "0x1", "NaN", "Infinity", "-Infinity", "1e", "1_0", "--1"),
]
TEXTS = [
    *('""', '"x"', '"1"', '"true"', '"null"', '"NaN"', '"Infinity"', '"é"', '"😀"', '"\\u00e9"'),
    *('"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"\\u0000"', '"\\u2028"'),
    *('"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\x7f"', '"\u2028"', '"\ufeff"', '"\\x"', "'x'", '"\t"', '"'),
    *(f'"{"x" * 2000}"', '"2020-01-01"', '" 1"', '"[]"', '"}\\n{"'),
]
OTHERS = [
    *("null", "true", "false", "Null", "TRUE", "tru", "[]", "{}", "[1]", '{"a":1}', "[1,]", "{,}"),
    *("[" * 90 + "]" * 90, "[" * 450 + "]" * 450, "[" * 1200 + "]" * 1200, "", " ", "1 2", "/**/1"),
]
TOKENS = [*NUMBERS, *TEXTS, *OTHERS]
WHOLE = [
    *("{}", " {}", "{} ", '{"i":1}\n', '{"i":1,"i":2}', '{"i":1,"i":null}', '{"i":1,"i":"x"}'),
    *('{"x":1,"x":"y"}', '{"\\u0069":1}', '{"I":1}', '{"i" : 1 , "l"\t:2}', '{"i":1}{"i":2}'),
    *('{"i":1} tail', '[{"i":1}]', "null", "", '{"i":1}}', '{"":1,"i":2}', '{"i":1,}'),
    *(f'{{"{"n" * 50_001}":1,"i":2}}', f'{{"{"n" * 40_000}":1,"i":2}}', '\ufeff{"i":1}'),
    *('{"i.l":1}', '{"i":{"l":1}}', '{"value":"x","key":1,"i":5}', '{"\\ud800":1,"i":5}'),
]


def random_values() -> list[bytes]:
    """Return each token in each field and in an unknown one, whole values, and mixtures."""
    alone = [f'{{"{name}":{token}}}' for name in (*TYPES, "x") for token in TOKENS]
    drawn, mixed = random.Random(1), []
    right = {
        "s": TEXTS[:10],
        "b": ["true", "false", "null"],
        **{name: ["0", "1", "-1", "127", "null"] for name in "yhil"},
        "d": ["1.5", "0", "1e23", "-7", "null"],
        "x": [*TOKENS[:5], *OTHERS[:3]],
    }
    for _ in range(400):
        names = drawn.sample([*right], drawn.randrange(len(right)))
        odd = drawn.random() < 0.2
        fields = [f'"{name}":{drawn.choice(TOKENS if odd else right[name])}' for name in names]
        mixed.append("{" + drawn.choice([",", ", ", " ,\n"]).join(fields) + "}")
    raw = [b'{"s":"\xff"}', b'{"\xff":1}', b'{"s":"\xed\xa0\x80"}', b'{"i":1}\x00', b'{"i":\x0b1}']
    return [*(text.encode() for text in (*alone, *WHOLE, *mixed)), *raw]


def test_what_arrow_reads_is_what_spark_reads(local: LocalQueries) -> None:
    """Whatever Spark refuses or reads in another way, Arrow does not read."""
    query = local.open(
        QuerySpec(f"SELECT {', '.join(TYPES)} FROM input", format="json", schema=DDL)
    )
    assert query.fields == JsonFields(SCHEMA, tuple(TYPES))
    values = [value for value in random_values() if read_fields([value], SCHEMA) is not None]
    assert len(values) > 400
    by_type = {
        name: [v for v in values if v.startswith(b'{"%s":' % name.encode())] for name in TYPES
    }
    assert min(map(len, by_type.values())) > 5
    batch = Batch([None] * len(values), values, [0] * len(values))
    left_to_spark, _ = table_of(batch, 0, query.columns, "json")
    read, _ = table_of(batch, 0, query.columns, "json", query.fields)
    assert (left_to_spark.column_names, read.column_names) == (
        ["value", "timestamp"],
        ["timestamp", *TYPES],
    )
    assert len(left_to_spark) == len(read) == len(values)
    of_spark, found = (batch_of(query.run(table)).values for table in (left_to_spark, read))
    wrong = [each for each in zip(values, of_spark, found, strict=True) if each[1] != each[2]]
    assert not wrong


STRINGS = [
    *(
        "''",
        "'x'",
        "NULL",
        "'a\"b'",
        "r'a\\b'",
        "'é😀'",
        "chr(0)",
        "chr(31)",
        "chr(32)",
        "chr(127)",
    ),
    *("CAST(x'ff' AS STRING)", "CAST(x'c3' AS STRING)", "CAST(x'eda080' AS STRING)", "'\u2028</'"),
]
COLUMNS = {
    "text": (*STRINGS, "concat('x', key)"),
    "other": ("'y'", "CAST(x'a9' AS STRING)", "NULL", "chr(9)"),
    "whole": ("0", "-1", "NULL", "9223372036854775807", "-9223372036854775808"),
    "tiny": ("CAST(-128 AS TINYINT)", "CAST(127 AS SMALLINT)", "2147483647", "CAST(NULL AS INT)"),
    "flag": ("true", "false", "NULL"),
    "half": (
        "1.5D",
        "0D",
        "-0.0D",
        "1e7D",
        "1e-3D",
        "9.999e-4D",
        "1.7976931348623157e308D",
        "NULL",
    ),
    "part": ("CAST(0.1 AS FLOAT)", "CAST(1e10 AS FLOAT)", "CAST(-0.0 AS FLOAT)", "NULL"),
}


def test_text_of_results_is_that_of_to_json(local: LocalQueries) -> None:
    """Also that of a string which is not UTF-8, and of one that has to be escaped."""
    size = 1000
    rows = {
        name: f"array({', '.join(values)})[pmod(hash(key, '{name}'), {len(values)})]"
        for name, values in COLUMNS.items()
    }
    given = ", ".join(f"{value} AS `{name}`" for name, value in rows.items())
    batch = Batch([b"%d" % n for n in range(size)], [b"{}"] * size, [0] * size)
    to_json = "to_json(struct(*), map('ignoreNullFields', 'false'))"
    found = []
    for spec in (
        QuerySpec(f"SELECT {given} FROM input", format="json"),
        QuerySpec(f"SELECT {to_json} AS value FROM (SELECT {given} FROM input)"),
    ):
        opened = local.open(spec)
        table, _ = table_of(batch, 0, opened.columns, "string")
        found.append(batch_of(opened.run(table)).values)
    assert len({*found[0]}) > 400
    assert found[0] == found[1]
