"""Monitor new users: persons who open an auction in the 10 seconds in which they appear.

Both sides are tables of windows, which are joined by person and window.
"""

from __future__ import annotations

from benchmarks.nexmark.queries.streams import GRACE_MS, TEN_SECONDS_MS, Json, builder
from kafka_pipeline import StreamsBuilder, Windowed, serdes, windows


def build(sink: str) -> StreamsBuilder:
    """Return the topology; its results are a table by person and window."""
    made = builder()
    each = windows.tumbling(TEN_SECONDS_MS, grace_ms=GRACE_MS)
    persons = made.stream("person", name="Persons").group_by_key().windowed_by(each)
    new = persons.reduce(lambda first, _again: first, name="New")
    auctions = made.stream("auction", name="Auctions")
    sellers = auctions.group_by(lambda _id, auction: str(auction["seller"]), name="BySeller")
    selling = sellers.windowed_by(each).count(name="Selling")
    both = new.join(selling, lambda person, _count: person)
    both.to_stream().map(_row).to(
        sink, key_serde=serdes.time_windowed(serdes.string, size_ms=TEN_SECONDS_MS)
    )
    return made


def _row(window: Windowed[str], person: Json) -> tuple[Windowed[str], Json]:
    start = window.window.start
    return window, {"id": person["id"], "name": person["name"], "stime": start}
