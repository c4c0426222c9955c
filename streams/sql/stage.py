"""A stage of a query: a part that runs by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_PLACE = re.compile(r"\(line (\d+), column (\d+)\)")


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

    def placed(self, message: str) -> str:
        """Return a message about the query of this stage, with places in the whole query."""
        return _PLACE.sub(lambda found: self._placed(int(found[1]), int(found[2])), message)

    def _placed(self, line: int, column: int) -> str:
        lines = self.query.splitlines(keepends=True)
        at, found = sum(map(len, lines[: line - 1])) + column - 1, 0
        for part, start in self.text:
            if start is not None:
                found = start + min(at, len(part))
            if at < len(part):
                break
            at -= len(part)
        before = self.whole[:found]
        return f"(line {before.count(chr(10)) + 1}, column {found - before.rfind(chr(10))})"
