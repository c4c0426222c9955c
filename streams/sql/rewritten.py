"""A query that was written in another way, which still knows the places of what is from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_pipeline.streams.sql.stage import Stage

Text = Sequence[tuple[str, int | None]]
"""Strings with their places in the query, or `None` for what is not from there."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The `text` that is run in place of the query `whole`."""

    whole: str
    text: Text

    @property
    def query(self) -> str:
        """The text as a string."""
        return "".join(part for part, _ in self.text)

    def between(self, start: int, end: int) -> Text:
        """Return the text from one of its characters up to another one."""
        found, at = list[tuple[str, int | None]](), 0
        for part, place in self.text:
            first, last = max(start - at, 0), min(end - at, len(part))
            if first < last:
                found.append((part[first:last], None if place is None else place + first))
            at += len(part)
        return found

    def placed(self, stage: Stage) -> Stage:
        """Return a stage of the text as one of the query."""
        text = list[tuple[str, int | None]]()
        for part, at in stage.text:
            text += [(part, None)] if at is None else self.between(at, at + len(part))
        return replace(stage, whole=self.whole, text=text)
