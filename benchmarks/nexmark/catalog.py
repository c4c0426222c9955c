"""The queries of Nexmark: which topics they read, and what their results are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.nexmark.generator import AUCTION, BID, PERSON

Json = dict[str, Any]
Reading = Callable[[Iterable[Json]], Iterable[Json]]
FOLDER = Path(__file__).parent
MODULES = tuple(
    f"benchmarks.nexmark.queries.{file.stem}" for file in sorted((FOLDER / "queries").glob("q*.py"))
)
"""The modules of the queries in the DSL, for config.yaml."""


def as_they_are(values: Iterable[Json]) -> Iterable[Json]:
    """Take each value of the sink as a row."""
    return values


def bids_of_bidders(values: Iterable[Json]) -> Iterator[Json]:
    """Add up the counts of each bidder, since only the wall clock knows the windows."""
    counts = Counter[int]()
    for value in values:
        counts[value["bidder"]] += value["bid_count"]
    return ({"bidder": bidder, "bid_count": count} for bidder, count in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One of the queries."""

    name: str
    title: str
    topics: tuple[str, ...] = (BID,)
    """The topics that it reads; progress is measured in the first one."""
    is_table: bool = False
    """Whether the results of this engine are a table: the last value of each key counts."""
    reading: Reading = as_they_are
    """The rows that the values of the sink mean."""
    quiet_s: float = 5.0
    """If nothing has changed for this long, all results are there."""
    window_time: str = "dateTime"
    """The column of a row that says in which window it is."""
    needs_order: bool = False
    """Whether bids look up auctions, which must have arrived by then."""

    @property
    def pipeline(self) -> Path:
        """The pipeline.yaml of this engine."""
        return FOLDER / "queries" / f"{self.name}.yaml"


QUERIES: Mapping[str, Query] = {
    query.name: query
    for query in (
        Query(name="q0", title="pass through"),
        Query(name="q1", title="currency conversion"),
        Query(name="q2", title="selection"),
        Query(name="q3", title="local item suggestion", topics=(AUCTION, PERSON)),
        Query(
            name="q4",
            title="average price for a category",
            topics=(BID, AUCTION),
            is_table=True,
        ),
        Query(name="q5", title="hot items", is_table=True),
        Query(
            name="q6",
            title="average selling price by seller",
            topics=(BID, AUCTION),
            is_table=True,
            needs_order=True,
        ),
        Query(name="q7", title="highest bid"),
        Query(name="q8", title="monitor new users", topics=(AUCTION, PERSON)),
        Query(
            name="q9",
            title="winning bids",
            topics=(BID, AUCTION),
            is_table=True,
        ),
        Query(name="q11", title="user sessions", window_time="starttime"),
        Query(
            name="q12",
            title="processing time windows",
            is_table=True,
            reading=bids_of_bidders,
            quiet_s=15.0,
        ),
        Query(name="q13", title="bounded side input"),
        Query(name="q14", title="calculation"),
        Query(name="q15", title="bidding statistics", is_table=True),
        Query(name="q16", title="channel statistics", is_table=True),
        Query(name="q17", title="auction statistics", is_table=True),
        Query(name="q18", title="last bid", is_table=True),
        Query(name="q19", title="ten highest bids", is_table=True),
        Query(name="q20", title="bids with their auctions", topics=(BID, AUCTION)),
        Query(name="q21", title="channel ids"),
        Query(name="q22", title="directories of URLs"),
        Query(name="q23", title="bids with their bidders' auctions", topics=(BID, PERSON, AUCTION)),
    )
}
"""All but q10, which writes files."""


@dataclass(frozen=True, slots=True)
class Section:
    """The text of a query in a file of SQL, and the words that follow its name."""

    words: tuple[str, ...]
    text: str


def sections(file: Path) -> Mapping[str, Section]:
    """Return the queries of a file in which each begins with a line such as `-- q4` or `-- q4 id`.

    What precedes the first one is a comment.
    """
    parts = re.split(r"^-- (q\d+)(.*)\n", file.read_text("utf-8"), flags=re.MULTILINE)
    names, words, texts = parts[1::3], parts[2::3], parts[3::3]
    return {
        name: Section(tuple(rest.split()), text.strip())
        for name, rest, text in zip(names, words, texts, strict=True)
    }
