"""Column expressions: what they give, what they refuse, and where they may be used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka_pipeline import (
    Expression,
    InvalidArgumentError,
    Record,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    coalesce,
    col,
    key,
    lit,
    serdes,
    struct,
    timestamp,
    value,
    when,
)
from kafka_pipeline.streams.dsl.expression_columns import BatchColumns, compute
from kafka_pipeline.streams.dsl.expression_rows import row_function
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import outputs

FLIGHT = {
    "delay": 20,
    "minus": -7,
    "distance": 2.5,
    "origin": "jfk ",
    "late": True,
    "plane": {"model": "A320", "seats": None},
    "none": None,
    "list": [1],
    "a.b": "dotted",
}
NAN = float("nan")
NEW_YEAR = 1_356_998_400_000  # 2013-01-01, a Tuesday

GIVES: list[tuple[Expression, Any]] = [
    (col("delay"), 20),
    (col("gone"), None),
    (col("plane.model"), "A320"),
    (col("plane")["model"], "A320"),
    (col("none.model"), None),
    (col("gone.model.x"), None),
    (value()["a.b"], "dotted"),
    (value()["plane"]["seats"], None),
    (key(), "k"),
    (timestamp(), NEW_YEAR),
    (lit("x"), "x"),
    (lit(None), None),
    # Arithmetic
    (col("delay") + 1, 21),
    (1 - col("delay"), -19),
    (col("delay") * col("distance"), 50.0),
    (col("delay") / 8, 2.5),
    (10 / col("delay"), 0.5),
    (col("minus") // 2, -4),
    (20 // col("minus"), -3),
    (col("minus") % 5, 3),
    (col("delay") % col("minus"), -1),
    (col("delay") * 2**62, 20 * 2**62),
    (-col("delay"), -20),
    (abs(col("minus")), 7),
    (2 * col("delay") + 2, 42),
    (2 + col("none"), None),
    (col("origin") + "x", "jfk x"),
    ("x" + col("origin"), "xjfk "),
    (col("distance").round(), 2.0),
    # Comparison
    (col("delay") > 15, True),
    (col("delay") >= 20.0, True),
    (col("delay") < 2**60, True),
    (col("origin") < "k", True),
    (col("none") == 1, None),
    (col("delay") == "20", False),
    (col("delay") != "20", True),
    (col("list") == col("list"), True),
    (lit(NAN) == NAN, False),
    (lit(NAN) < 1.0, False),
    (col("delay").is_in([19, 20]), True),
    (col("delay").is_in(["20"]), False),
    (col("none").is_in([1]), None),
    (col("none").is_null(), True),
    (col("delay").is_null(), False),
    (col("gone").is_not_null(), False),
    # Logic
    (col("late") & (col("delay") > 15), True),
    (col("late") & col("none"), None),
    (col("none") & (col("delay") < 0), False),
    (col("late") | col("none"), True),
    (col("none") | (col("delay") < 0), None),
    (~col("late"), False),
    (~col("none"), None),
    (True & col("late"), True),
    ((col("delay") == 0) & (1 / (col("delay") - 20) > 1), False),
    # Strings
    (col("origin").str.to_uppercase(), "JFK "),
    (lit("Straße").str.to_uppercase(), "STRASSE"),
    (lit("ÄB").str.to_lowercase(), "äb"),
    (col("origin").str.strip_chars(), "jfk"),
    (lit("\u2003x\x1f").str.strip_chars(), "x"),
    (lit("naïve").str.len_chars(), 5),
    (col("origin").str.starts_with("jf"), True),
    (col("origin").str.ends_with("jf"), False),
    (col("origin").str.contains("fk", literal=True), True),
    (col("origin").str.contains(".k", literal=True), False),
    (col("origin").str.contains("^j.k"), True),
    (col("origin").str.contains("fk"), True),
    (col("origin").str.replace_all("k", "kk"), "jfkk "),
    (col("origin").str.replace_all(".", "x", literal=True), "jfk "),
    (col("origin").str.replace_all("([fk])", r"<\1>"), "j<f><k> "),
    (col("origin").str.replace_all("k", r"\n"), "jf\n "),
    (col("origin").str.replace_all("", "-"), "-j-f-k- -"),
    (col("origin").str.slice(1, 2), "fk"),
    (col("origin").str.slice(-2), "k "),
    (col("origin").str.slice(-3, 2), "fk"),
    (col("origin").str.slice(-6, 3), "j"),
    (col("origin").str.slice(9, 2), ""),
    (col("origin").str.slice(2, 0), ""),
    # Conversions
    (lit("-17").cast(int), -17),
    (lit(-2.9).cast(int), -2),
    (lit("1e3").cast(float), 1000.0),
    (col("delay").cast(str), "20"),
    (col("distance").cast(str), "2.5"),
    # Times
    (timestamp().dt.year(), 2013),
    (timestamp().dt.month(), 1),
    (timestamp().dt.day(), 1),
    (timestamp().dt.weekday(), 2),
    ((timestamp() - 1).dt.hour(), 23),
    ((timestamp() - 1).dt.minute(), 59),
    ((timestamp() - 1).dt.second(), 59),
    ((timestamp() + 1).dt.truncate(86_400_000), NEW_YEAR),
    ((timestamp() + 1).dt.truncate(timedelta(days=1)), NEW_YEAR),
    (lit(-1).dt.truncate(1000), -1000),
    (lit("2013-01-01").str.to_datetime(), NEW_YEAR),
    (lit("2013-01-01T01:00:00.5+01:00").str.to_datetime(), NEW_YEAR + 500),
    ((timestamp() + 1).dt.to_string(), "2013-01-01T00:00:00.001Z"),
    # Choices
    (coalesce(col("none"), col("gone"), 7), 7),
    (coalesce(col("delay"), 1 / (col("delay") - 20)), 20),
    (when(col("delay") > 15).then("late").otherwise("on time"), "late"),
    (when(col("none")).then(1).when(col("late")).then(2).otherwise(3), 2),
    (when(col("delay") < 0).then("early"), None),
    (struct(a=col("delay"), b=struct(c=1)), {"a": 20, "b": {"c": 1}}),
    (struct(a=col("delay"))["a"] + 1, 21),
    (struct(a=col("delay"))["b"], None),
]


@pytest.mark.parametrize(("expression", "expected"), GIVES, ids=lambda each: repr(each))
def test_expressions_give(expression: Expression, expected: Any) -> None:
    by_row = row_function(expression)("k", FLIGHT, NEW_YEAR)
    assert repr(by_row) == repr(expected)


ONLY_BY_ROW = {
    repr(col("delay") == "20"),
    repr(col("list") == col("list")),
    repr((col("delay") == 0) & (1 / (col("delay") - 20) > 1)),
    repr(coalesce(col("delay"), 1 / (col("delay") - 20))),
}
"""Their types have no columns in common, or what is not needed fails."""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [each for each in GIVES if repr(each[0]) not in ONLY_BY_ROW],
    ids=lambda each: repr(each),
)
def test_expressions_give_the_same_by_column(expression: Expression, expected: Any) -> None:
    batch = Batch(["k", "k"], [FLIGHT, FLIGHT], [NEW_YEAR, NEW_YEAR])
    assert repr(compute(expression, BatchColumns(batch)).to_pylist()) == repr([expected] * 2)


REFUSES: list[tuple[Expression, str]] = [
    (col("origin") > 15, r'col\("origin"\) > 15: > takes two numbers, .* not a str and an int'),
    (col("late") + 1, r'col\("late"\) \+ 1: \+ takes two numbers or two strings, not a bool'),
    (col("delay") / (col("delay") - 20), r"/ .*: division by zero"),
    (col("delay") % 0, "division by zero"),
    (lit(2**2000) / 3, "too large for a float"),
    (
        col("delay").str.to_uppercase(),
        r'col\("delay"\).str.to_uppercase\(\): this takes a string, not an int',
    ),
    (col("delay.x"), r'col\("delay.x"\): col\("delay"\) is an int, not a dict'),
    (col("delay") & col("late"), "& takes bools, not an int"),
    (col("late") & col("delay"), "& takes bools, not an int"),
    (~col("delay"), "takes a bool, not an int"),
    (lit("1_0").cast(int), "the string is not a whole number"),
    (lit(NAN).cast(int), "not whole numbers"),
    (lit("nan").cast(float), "not a decimal number"),
    (lit(10**15).dt.year(), "not in the years 1 to 9999"),
    (col("distance").dt.hour(), "this takes a time in whole milliseconds, not a float"),
    (lit("soon").str.to_datetime(), "not a time of ISO 8601"),
    (when(col("delay")).then(1), r'col\("delay"\) is an int, not a bool'),
]


@pytest.mark.parametrize(("expression", "message"), REFUSES, ids=lambda each: repr(each))
def test_expressions_refuse(expression: Expression, message: str) -> None:
    with pytest.raises(StreamsError, match=message):
        row_function(expression)("k", FLIGHT, NEW_YEAR)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bool(col("a") > 1), "Write & for and"),
        (lambda: (col("a") > 1) and (col("b") > 1), "Write & for and"),
        (lambda: 1 < col("a") < 3, "Write & for and"),
        (lambda: "x" in col("a"), "use is_in for one of several values, or str.contains"),
        (lambda: list(col("a")), "cannot be iterated"),
        (lambda: col("a") == None, r"use is_null\(\)"),  # noqa: E711
        (lambda: col("a") + {}, "not a dict"),
        (lambda: col("a..b"), "col takes the name of a field"),
        (lambda: col(1), "col takes the name of a field"),  # type: ignore[arg-type]
        (lambda: col("a")[0], "the name of a field is a string"),  # type: ignore[index]
        (lambda: lit({}), "not a dict"),  # type: ignore[arg-type]
        (lambda: col("a").is_in("abc"), "is_in takes a list"),
        (lambda: col("a").is_in([None]), r"for null, use is_null\(\)"),  # type: ignore[list-item]
        (lambda: col("a").is_in([NAN]), "not nan"),
        (lambda: col("a").str.contains("("), "not a regular expression: .* give literal=True"),
        (lambda: col("a").str.contains(1), "contains takes a string"),  # type: ignore[arg-type]
        (lambda: col("a").str.replace_all("", "x", literal=True), "not empty"),
        (lambda: col("a").str.replace_all("b", r"\1"), "does not fit 'b': invalid group"),
        (lambda: col("a").str.replace_all("b", r"\g<c>"), "does not fit 'b': unknown group"),
        (lambda: col("a").str.slice(1, -1), "length that is a whole number, 0 or more"),
        (lambda: col("a").cast(bool), "cast takes int, float or str"),
        (lambda: col("a").dt.truncate(0), "1 or more"),
        (lambda: col("a").dt.truncate("1h"), "give a timedelta"),  # type: ignore[arg-type]
        (lambda: when(True), "when takes an expression"),
        (lambda: coalesce(), "one expression or more"),
        (lambda: struct(), "struct takes fields"),
    ],
)
def test_misuse_is_refused_with_advice(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


# In steps

RECORDS = [
    Record("a", {"delay": 20, "to": "SFO"}, 3_600_000),
    Record("b", {"delay": 5, "to": "LAX"}, 7_200_000),
    Record("c", {"delay": None, "to": None}, 0),
    Record("d", None, 1),
]

STEPS: dict[str, tuple[Callable[[Stream], Stream], list[tuple[Any, Any]]]] = {
    "filter": (
        lambda s: s.filter(col("delay") > 15).map_values(col("to")),
        [("a", "SFO")],
    ),
    "filter_not drops what is null, as filter does": (
        lambda s: s.filter_not(col("delay") > 15).map_values(col("to")),
        [("b", "LAX")],
    ),
    "map_values": (
        lambda s: s.map_values(struct(to=col("to").str.to_lowercase(), hour=timestamp().dt.hour())),
        [
            ("a", {"to": "sfo", "hour": 1}),
            ("b", {"to": "lax", "hour": 2}),
            ("c", {"to": None, "hour": 0}),
            ("d", {"to": None, "hour": 0}),
        ],
    ),
    "select_key": (
        lambda s: s.select_key(coalesce(col("to"), key())).map_values(col("delay")),
        [("SFO", 20), ("LAX", 5), ("c", None), ("d", None)],
    ),
    "group_by": (
        lambda s: s.group_by(col("to").str.slice(0, 1), name="By").count(name="N").to_stream(),
        [("S", 1), ("L", 1)],
    ),
    "split": (
        lambda s: s.split({"late": col("delay") > 15}, default="rest")["rest"].map_values(
            col("to")
        ),
        [("b", "LAX"), ("c", None), ("d", None)],
    ),
    "functions and expressions in one chain": (
        lambda s: (
            s.filter(lambda key, value: value is not None)
            .filter(col("to").is_not_null())
            .map_values(lambda value: {**value, "x": 1})
            .map_values(col("x") + col("delay"))
        ),
        [("a", 21), ("b", 6)],
    ),
}


@pytest.mark.parametrize("repeated", [1, 20])
@pytest.mark.parametrize(("step", "expected"), STEPS.values(), ids=STEPS)
def test_steps_take_expressions(
    step: Callable[[Stream], Stream], expected: list[tuple[Any, Any]], repeated: int
) -> None:
    """A batch of 4 records is computed by row, one of 80 by column."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    built = step(builder.stream("in"))
    is_count = built.step.value_serde is serdes.int64
    built.to("out")
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in", serdes.string, serdes.json).pipe_batch(RECORDS * repeated)
        value_serde: Any = serdes.int64 if is_count else serdes.json
        found = [(k, v) for k, v, _ in outputs(driver, "out", serdes.string, value_serde)]
    if is_count:
        found, expected = found[-2:], [(k, repeated) for k, _ in expected]
    else:
        expected = expected * repeated
    assert found == expected


def test_tables_take_expressions() -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    late = builder.table("in", name="In").filter(col("delay") > 15)
    late.map_values(struct(k=key(), to=col("to"))).to_stream().to("out")
    builder.table("other", name="Other").filter_not(col("delay") > 15).to_stream().to("not")
    with TopologyTestDriver(builder) as driver:
        for name in ("in", "other"):
            topic = driver.create_input_topic(name, serdes.string, serdes.json)
            for delay in (20, 5, None):
                topic.pipe_input("a", {"delay": delay, "to": "SFO"}, timestamp=0)
        found = outputs(driver, "out", serdes.string, serdes.json)
        others = outputs(driver, "not", serdes.string, serdes.json)
    assert [each for _, each, _ in found] == [{"k": "a", "to": "SFO"}, None]
    assert [each and each["delay"] for _, each, _ in others] == [5, None]


def test_tables_have_no_timestamps() -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    with pytest.raises(TopologyError, match='filter "Late" has no timestamp of a record'):
        builder.table("in", name="In").filter(timestamp() > 1, name="Late")


@pytest.mark.parametrize("count", [1, 40])
def test_an_error_names_step_and_types_and_rejects_one_record(count: int) -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    builder.stream("in").filter(col("delay") > 15, name="Late").to("out")
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        records = [Record("a", {"delay": 16}, 0)] * count
        with pytest.raises(StreamsError, match=r'step "Late": col\("delay"\) > 15: > takes'):
            topic.pipe_batch([*records, Record("a", {"delay": "x"}, 0), *records])
        assert len(outputs(driver, "out", serdes.string, serdes.json)) == count


def test_a_step_that_takes_no_expression_says_so() -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    with pytest.raises(TopologyError, match="peek takes a function of key and value"):
        builder.stream("in").peek(col("a"))  # type: ignore[arg-type]


def test_the_text_of_an_expression_is_the_code_that_makes_it() -> None:
    late = when((col("a.b") > 1) & ~col("c")).then(value()["d.e"]).otherwise(-timestamp())
    assert repr(late) == (
        'when((col("a.b") > 1) & (~col("c"))).then(value()["d.e"]).otherwise(-timestamp())'
    )
    calls = [
        col("a").cast(float),
        col("a").str.contains("{}", literal=True),
        col("a").str.replace_all("b", "c", literal=True),
        col("a").str.slice(-3, 2),
        col("a").dt.truncate(1000),
    ]
    assert [repr(each) for each in calls] == [
        'col("a").cast(float)',
        "col(\"a\").str.contains('{}', literal=True)",
        "col(\"a\").str.replace_all('b', 'c', literal=True)",
        'col("a").str.slice(-3, 2)',
        'col("a").dt.truncate(1000)',
    ]
