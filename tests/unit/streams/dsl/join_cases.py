"""Reads the cases of joins: inputs of two sides, and the results that come after them.

    # KStreamKStreamLeftJoinTest.testOrdering
    left_join before=100 after=100 grace=0
    left 0:A0@0 1:A1@100 ->
    right 1:a1@110 -> 0=A0+null@0 1=A1+a1@110

Without an arrow, results come with a later line. With `changes`, they have their old values.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline import Processor, Record
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs, shown
from tests.unit.streams.dsl.running import pipe

_FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class JoinCase:
    """A case: the method of the DSL, its numbers and words, and the lines."""

    name: str
    method: str
    numbers: dict[str, int]
    words: frozenset[str]
    lines: tuple[str, ...]


def cases(file: str) -> list[JoinCase]:
    """Return the cases of a file in the folder `cases`."""
    found = []
    for block in (_FOLDER / file).read_text().split("\n\n")[1:]:
        title, head, *lines = block.strip().splitlines()
        method, *options = head.split()
        pairs = [option.partition("=") for option in options]
        numbers = {name: int(value) for name, equals, value in pairs if equals}
        words = frozenset(name for name, equals, _ in pairs if not equals)
        found.append(JoinCase(title.removeprefix("# "), method, numbers, words, tuple(lines)))
    assert found
    return found


def check(driver: TopologyTestDriver, case: JoinCase, results: list[str]) -> None:
    """Write the inputs of a case to the topics `left` and `right`, and compare the results."""
    for line in case.lines:
        given, arrow, expected = line.partition("->")
        side, _, records = given.partition(" ")
        found = inputs(records, side)
        pipe(driver, [(t, None if k == "null" else k, v, at) for t, k, v, at in found])
        if arrow:
            assert results == expected.split(), line
            results.clear()


class Watching(Processor):
    """Adds the records that it gets to a list, as text; of changes, also the old values."""

    def __init__(self, found: list[str], changes: bool = False) -> None:
        self._found = found
        self._changes = changes

    def process(self, record: Record) -> None:
        value = record.value
        if self._changes:
            old = "null" if value.old is None else value.old
            new = "null" if value.new is None else value.new
            value = None if new == old == "null" else f"{new}/{old}"
        self._found.append(shown(record.key, value, record.timestamp))
