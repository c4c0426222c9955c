"""Values of `format: json` that are not JSON objects are found, whatever their batch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import table_of
from kafka_pipeline.streams.sql.strict_json import NOT_AN_OBJECT, count_right

RIGHT = [
    b'{"a":1}',
    b'{"Info":"NaN, Inf"}',
    b' {"a": [1e3, -0, null, {"b": "\\ud83d\\ude00"}]}\n',
    b"{}",
    None,
]
WRONG = [
    b"",
    b" ",
    b"\n",
    b"null",
    b"5",
    b'"text"',
    b'[{"a":1}]',
    b"[]",
    b'{"a":1} tail',
    b'{"a":1}{"a":2}',
    b'{"a":1}\n{"a":2}',
    b'{"a":1}}',
    b'{"a":1',
    b"{'a':1}",
    b"{\"a\":'x'}",
    b"{a:1}",
    b'{"a":NaN}',
    b'{"a":-Infinity}',
    b'{"a":[NaN]}',
    b'{"a":[1,Inf]}',
    b'{"a": -NaN}',
    b'{"a":1e400}',
    b'{"a":-1e400}',
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":.5}',
    b'{"a":1.}',
    b'{"a":0x1}',
    b'{"a":1,}',
    b'{"a":[1,]}',
    b'{"a":tru}',
    b'{"a":1/*x*/}',
    b'{"a":"\t"}',
    b'{"a":"\\x"}',
    b'{"a":\x0b1}',
    b'{"a":1}\x00',
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":"\xff"}',
    b"[" * 5000,
    b'{"a":' + b"9" * 5000 + b"}",
]


@pytest.mark.parametrize("before", [0, 1, 40, 1010])
@pytest.mark.parametrize("wrong", WRONG)
def test_the_first_value_that_is_not_a_json_object_is_found(wrong: bytes, before: int) -> None:
    right = (RIGHT * 300)[:before]
    found, reason = count_right([*right, wrong, b"{", *right])
    assert found == before
    assert reason.startswith((NOT_AN_OBJECT, "the value is not UTF-8"))
    assert not any(character.isdigit() for character in reason.replace("UTF-8", ""))


@pytest.mark.parametrize("copies", [1, 20, 600])
def test_json_objects_are_right(copies: int) -> None:
    assert count_right(RIGHT * copies) == (len(RIGHT) * copies, "")


@given(
    st.lists(
        st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False) | st.text()),
        min_size=32,
        max_size=40,
    )
)
def test_what_python_writes_is_right_unless_it_is_infinite(values: list[dict[str, object]]) -> None:
    written = [json.dumps(value).encode() for value in values]
    infinite = [index for index, value in enumerate(values) if float("inf") in value.values()]
    infinite += [index for index, value in enumerate(values) if float("-inf") in value.values()]
    assert count_right(written)[0] == min(infinite, default=len(values))


def test_a_table_ends_before_the_first_wrong_value_unless_it_is_lenient() -> None:
    batch = Batch([None] * 3, [b"{}", b"{} tail", b"{}"], [1, 2, 3])
    assert table_of(batch, 0, ["value"], "json")[0].num_rows == 1
    assert table_of(batch, 0, ["value"], "json")[1] == f"{NOT_AN_OBJECT}: extra data"
    assert table_of(batch, 0, ["value"], "json", is_lenient=True)[0].num_rows == 3
    assert table_of(batch, 0, ["timestamp"], "json")[0].num_rows == 3
    assert table_of(batch, 0, ["value"], "string")[0].num_rows == 3
