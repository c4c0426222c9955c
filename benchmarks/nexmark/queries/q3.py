"""Local item suggestion: auctions of one category with their sellers in three states.

The seller is a foreign key: each auction has one, and a seller has any number of auctions. Either
side may come first.
"""

from __future__ import annotations

from benchmarks.nexmark.queries.streams import Json, builder
from kafka_pipeline import StreamsBuilder, Table, col


def build(sink: str) -> StreamsBuilder:
    """Return the topology."""
    made = builder()
    auctions: Table[str, Json] = made.table("auction", name="Auctions")
    persons: Table[str, Json] = made.table("person", name="Persons")
    suggested: Table[str, Json] = auctions.filter(col("category") == 10).join(
        persons.filter(col("state").is_in(["OR", "ID", "CA"])),
        lambda auction, person: {
            **{name: person[name] for name in ("name", "city", "state")},
            "id": auction["id"],
        },
        foreign_key=lambda auction: str(auction["seller"]),
        name="Suggested",
    )
    suggested.to_stream().to(sink)
    return made
