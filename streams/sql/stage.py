"""A stage of a query: a part that runs by itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

THERE = "__there"
"""A column that says that a row is there, where its other columns may be null."""

_PLACE = re.compile(r"( ?)\(line (\d+), column (\d+)\)")


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the query `whole` that runs by itself; the last one has the name "".

    `text` consists of strings with their places in the whole query, or `None` for what is not
    from there.
    """

    name: str
    whole: str
    text: Sequence[tuple[str, int | None]]

    @classmethod
    def of_all(cls, query: str) -> Stage:
        """Return a query that is one stage."""
        return cls("", query, [(query, 0)])

    @property
    def query(self) -> str:
        """The query of the stage, which reads other stages as tables."""
        return "".join(part for part, _ in self.text)

    def with_column(self, column: str) -> Stage:
        """Return a stage, which begins with SELECT, that gives one more column."""
        (first, place), *others = self.text
        rest = first[len("SELECT") :], None if place is None else place + len("SELECT")
        return replace(self, text=[(f"SELECT {column},", None), rest, *others])

    def with_marks(self, tables: Collection[str]) -> Stage:
        """Return a stage that reads these stages with one more column, which is always true."""
        text = [
            (part if place is not None else _marked(part, tables), place)
            for part, place in self.text
        ]
        return replace(self, text=text)

    def placed(self, message: str) -> str:
        """Return a message about the query of this stage, with places in the whole query.

        What is not from there, such as the text of a view, has no place.
        """

        def shown(found: re.Match[str]) -> str:
            place = self._placed(int(found[2]), int(found[3]))
            return place and found[1] + place

        return _PLACE.sub(shown, message)

    def _placed(self, line: int, column: int) -> str:
        lines = self.query.splitlines(keepends=True)
        at = sum(map(len, lines[: line - 1])) + column - 1
        for part, start in self.text:
            if at < len(part):
                return "" if start is None else self._shown(start + at)
            at -= len(part)
        return self._shown(len(self.whole))

    def _shown(self, place: int) -> str:
        before = self.whole[:place]
        return f"(line {before.count(chr(10)) + 1}, column {place - before.rfind(chr(10))})"


def _marked(part: str, tables: Collection[str]) -> str:
    """Return a part of a query that reads a table, and perhaps gives it an alias, with `THERE`."""
    for name in (f"`{table}`" for table in tables):
        written, rest = part[: len(name)], part[len(name) :]
        if written.lower() == name.lower():
            return f"(SELECT *, true AS {THERE} FROM {written}){rest}"
    return part
