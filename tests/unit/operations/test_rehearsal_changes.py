"""What is marked in the graphs of two versions."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.operations.rehearsal.changes import Change, ShownVersion, shown_versions
from kafka_pipeline.operations.rehearsal.comparer import Side
from tests.console_sample import config
from tests.unit.streams.pipeline.loading import load

OLD = """
processors:
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""


def loaded(text: str) -> Pipeline:
    return load(text, config())


def marks(version: ShownVersion) -> dict[str, tuple[Change, tuple[str, ...]]]:
    return {each.id: (each.change, each.differs) for each in version.processors}


def test_versions_that_are_alike_have_no_marks() -> None:
    old = loaded(OLD)
    for version in shown_versions(old, loaded(OLD)).values():
        assert {change for change, _ in marks(version).values()} == {Change.SAME}


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ("type: sum, to: [Counter]", "type: forward, to: [Counter]", ("type",)),
        ("type: sum", "type: sum, config: {constant: 3}", ("settings",)),
        ("to: [Counter]", "to: [Counter], on_error: skip", ("on_error",)),
        ("to: [Counter]", "to: [Counter, sink]", ("outputs",)),
    ],
)
def test_what_differs_is_named_in_both_versions(
    before: str, after: str, differs: tuple[str, ...]
) -> None:
    assert before in OLD
    old, new = loaded(OLD), loaded(OLD.replace(before, after))
    for version in shown_versions(old, new).values():
        found = marks(version)
        assert found["Adder"] == (Change.CHANGED, differs)
        assert found["Counter"] == (Change.SAME, ())


def test_processors_that_come_and_go_are_marked_where_they_are() -> None:
    text = OLD.replace("Counter", "Totals").replace("type: count", "type: forward")
    found = shown_versions(loaded(OLD), loaded(text))
    assert marks(found[Side.OLD])["Counter"] == (Change.REMOVED, ())
    assert marks(found[Side.NEW])["Totals"] == (Change.ADDED, ())


def test_a_renamed_processor_is_changed_rather_than_new() -> None:
    text = OLD.replace("Counter", "Totals").replace("type: count", "type: count, was: Counter")
    found = shown_versions(loaded(OLD), loaded(text))
    words = ("id, was Counter",)
    assert marks(found[Side.OLD])["Counter"] == (Change.CHANGED, words)
    assert marks(found[Side.NEW])["Totals"] == (Change.CHANGED, words)


def test_other_code_is_a_change() -> None:
    old = loaded(OLD)
    found = shown_versions(old, old, {"Adder"})[Side.NEW]
    assert marks(found)["Adder"] == (Change.CHANGED, ("code",))
