"""Hot items: the auctions with most bids in the last 10 seconds, every 2 seconds.

Counts come once, when their window closes. They meet again by the start of the window, where the
largest is kept, with all auctions that have it.
"""

from __future__ import annotations

from benchmarks.nexmark.queries.streams import GRACE_MS, TEN_SECONDS_MS, Json, builder
from kafka_pipeline import StreamsBuilder, Windowed, windows


def build(sink: str) -> StreamsBuilder:
    """Return the topology; its results are a table by the start of the window, in ms."""
    made = builder()
    every_two = windows.hopping(TEN_SECONDS_MS, advance_ms=2_000, grace_ms=GRACE_MS)
    bids = made.stream("bid", name="Bids").group_by_key()
    counts = bids.windowed_by(every_two, emit="on_close").count(name="Counts")
    hottest = counts.to_stream().map(_by_start).group_by_key(name="ByStart")
    hottest.aggregate(_none, _keep_hottest, name="Hottest").to_stream().to(sink)
    return made


def _by_start(auction: Windowed[str], count: int) -> tuple[str, Json]:
    start = auction.window.start
    return str(start), {"start": start, "auction": int(auction.key), "num": count}


def _none() -> Json:
    return {"num": 0}


def _keep_hottest(_start: str, count: Json, hottest: Json) -> Json:
    if count["num"] < hottest["num"]:
        return hottest
    tied = hottest["auctions"] if count["num"] == hottest["num"] else []
    return {
        "start": count["start"],
        "num": count["num"],
        "auctions": sorted([*tied, count["auction"]]),
    }
