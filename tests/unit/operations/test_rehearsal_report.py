"""What a rehearsal has found, as JSON and as lines."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from kafka_pipeline.operations.rehearsal.comparer import Example, Kind, Result, Side, Tally
from kafka_pipeline.operations.rehearsal.report import (
    Figures,
    Report,
    differing,
    lines_of,
    shown,
)
from kafka_pipeline.operations.rehearsal.report_json import Verdict


def result(value: bytes | None, offset: int = 0, time_ms: int = 0) -> Result:
    return Result(1, offset, b"secret key", value, time_ms, ())


def pair(old: bytes | None, new: bytes | None, new_ms: int = 0) -> Example:
    return Example("totals", Kind.DIFFERENT, result(old, 7), result(new, 9, new_ms))


def report(tally: Tally, failed: Sequence[str] = ()) -> Report:
    figures = Figures(100, 10.0, 3)
    return Report(
        job="shop",
        old_version=4,
        rested_ms=1800,
        compared_until_ms=1_000,
        tallies={"totals": tally},
        waiting={Side.OLD: 2, Side.NEW: 0},
        judged_early=0,
        figures={Side.OLD: figures, Side.NEW: figures},
        catching_up=figures,
        failed={Side.OLD: (), Side.NEW: failed},
        notes=(),
    )


def test_equal_results_are_equal_unless_a_task_of_the_shadow_fails() -> None:
    assert report(Tally(equal=3)).verdict is Verdict.EQUAL
    assert report(Tally(equal=3), ["Adder_0: broken"]).verdict is Verdict.DIFFERENT
    assert report(Tally()).verdict is Verdict.NOTHING


def test_any_difference_counts() -> None:
    tally = Tally(equal=3)
    tally.add(Example("totals", Kind.ONLY_NEW, None, result(b"1")))
    assert report(tally).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        (b"1", b"2", ["value"]),
        (b'{"a": 1, "b": 2}', b'{"a": 1, "b": 3, "c": null}', ["value.b", "value.c"]),
        (b'{"a": 1, "b": 2}', b'{"b":2,"a":1}', ["value (the same JSON, in other bytes)"]),
        (b'{"a": 1}', None, ["value"]),
        (b"[1]", b"[2]", ["value"]),
    ],
)
def test_fields_that_differ_are_named(
    old: bytes | None, new: bytes | None, differs: list[str]
) -> None:
    assert differing(pair(old, new), with_values=True) == differs
    assert differing(pair(old, new), with_values=False) == ["value"]


def test_another_time_is_named_too() -> None:
    assert differing(pair(b"1", b"1", new_ms=5), with_values=True) == ["timestamp"]


def test_examples_show_both_sides_and_records_only_if_that_is_allowed() -> None:
    example = pair(b'{"total": "secret 1"}', b'{"total": "secret 2"}')
    assert list(lines_of(example, with_values=True)) == [
        "totals: different in value.total of key secret key",
        '  old  1@7  1970-01-01 00:00:00 UTC  {"total": "secret 1"}',
        '  new  1@9  1970-01-01 00:00:00 UTC  {"total": "secret 2"}',
    ]
    tally = Tally(equal=1)
    tally.add(example)
    assert "secret" not in " ".join(lines_of(example, with_values=False))
    assert "secret" not in json.dumps(report(tally).to_json(with_values=False))
    found = report(tally).to_json(with_values=True)["outputs"]["totals"]["examples"][0]
    assert found["key"] == "secret key"
    assert found["new"]["value"] == '{"total": "secret 2"}'


def test_text_of_records_is_limited() -> None:
    assert shown(b"x" * 1000) == "x" * 200 + "…"
    assert shown(b"\xff\x00") == "\\xff\x00"
    assert shown(None) == "null"
