"""Numbers that Spark's reader of JSON would be busy with for hours are found before it is."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import table_of
from kafka_pipeline.streams.sql.large_exponents import decimal_fields, exponent_problem
from kafka_pipeline.streams.sql.spec import QuerySpec

SCHEMA = (
    "id STRING, price DECIMAL(10, 2), `the tax` dec(5,1) NOT NULL, items ARRAY<STRUCT<cost: "
    "DECIMAL(5,2), code: STRING>>, rates MAP<STRING, ARRAY<numeric(3,1)>>, decimals INT"
)
NAMES = frozenset(("price", "the tax", "cost", "rates"))


def test_fields_with_decimals_are_found_at_any_depth() -> None:
    assert decimal_fields((SCHEMA,)) == NAMES
    assert QuerySpec(schema="a INT", schemas={"x": "b DECIMAL(3)"}).decimals == {"b"}


@pytest.mark.parametrize(
    "value",
    [
        '{"price": 1e-10000}',
        '{"price": 1E+999999999}',
        '{"price": "1e10000"}',
        '{"price": "-1.5E-99,999"}',
        '{"price": "1e,-,1,00,00"}',
        '{"price": "1e\\u0031\\u0030000"}',
        '{"price": "1\\u006510000"}',
        '{"price": "1e\u0661\u0660\u0660\u0660\u0660"}',
        '{"price": "1e' + "9" * 5_000 + '"}',
        '{"items": [{"cost": 1}, {"cost": 1e99999}]}',
        '{"rates": {"any": [1e-99999]}}',
        '{"the tax": 1e99999}',
        '{"price": 1, "price": 1e99999, "price": 2}',
        '{"price": 1e99999',
    ],
)
def test_a_large_exponent_is_found_however_it_is_written(value: str) -> None:
    assert exponent_problem(value.encode(), NAMES)
    columns = ("key", "value")
    good = b'{"price": 1.5}'
    for before in (0, 40):
        batch = Batch(
            [b"k"] * (before + 2),
            [*[good] * (before + 1), value.encode()],
            [0] * (before + 2),
            None,
            [0],
        )
        table, wrong = table_of(batch, 0, columns, "json", is_lenient=True, decimals=NAMES)
        assert (len(table), wrong) == (before + 1, exponent_problem(value.encode(), NAMES))


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        '{"price": 1e308, "the tax": "1e-9999"}',
        '{"id": "1e12345", "decimals": 1e-99999}',
        '{"items": [{"cost": 1, "code": "7e123456"}]}',
        '{"price": "no number e12345"}',
        '{"price": null, "caf\u00e9": true, "rates": {"1e12345": [1]}}',
    ],
)
def test_other_values_stay(value: str) -> None:
    assert exponent_problem(value.encode(), NAMES) == ""
