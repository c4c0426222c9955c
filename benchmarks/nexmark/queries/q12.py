"""Processing time windows: how many bids of a bidder come in each 10 seconds of the wall clock.

The time of a bid is that at which it is read. It stays with the bid on its way to its bidder.
"""

from __future__ import annotations

from benchmarks.nexmark.queries.streams import Json, builder
from kafka_pipeline import (
    StreamsBuilder,
    WallclockTimestampExtractor,
    Windowed,
    serdes,
    windows,
)

TEN_SECONDS_MS = 10_000
GRACE_MS = 4_000


def build(sink: str) -> StreamsBuilder:
    """Return the topology; its results are a table by bidder and window."""
    made = builder()
    bids = made.stream("bid", name="Bids", timestamp_extractor=WallclockTimestampExtractor())
    bidders = bids.group_by(lambda _auction, bid: str(bid["bidder"]), name="ByBidder")
    each = windows.tumbling(TEN_SECONDS_MS, grace_ms=GRACE_MS)
    counts = bidders.windowed_by(each).count(name="Counts")
    counts.to_stream().map(_row).to(
        sink, key_serde=serdes.time_windowed(serdes.string, size_ms=TEN_SECONDS_MS)
    )
    return made


def _row(window: Windowed[str], count: int) -> tuple[Windowed[str], Json]:
    start, end = window.window.start, window.window.end
    return window, {
        "bidder": int(window.key),
        "bid_count": count,
        "starttime": start,
        "endtime": end,
    }
