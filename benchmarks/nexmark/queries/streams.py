"""What the queries in the DSL share: the streams of the events, and winning bids."""

from __future__ import annotations

from typing import Any

from kafka_pipeline import Stream, StreamsBuilder, Table, serdes

Json = dict[str, Any]


def builder() -> StreamsBuilder:
    """Return a builder whose keys are ids in decimal digits, and whose values are JSON objects."""
    return StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)


def winning_bids(builder: StreamsBuilder) -> Table[str, Json]:
    """Return the highest bid of each auction while it was open, with the auction.

    A bid looks up its auction, which has the same key and is older.
    """
    auctions: Table[str, Json] = builder.table("auction", name="Auctions")
    bids: Stream[str, Json] = builder.stream("bid", name="Bids")
    pairs: Stream[str, Json] = bids.join(
        auctions, lambda bid, auction: {"bid": bid, "auction": auction}
    )
    return pairs.filter(_is_open).group_by_key().reduce(_higher, name="Winning")


def _is_open(_key: str, pair: Json) -> bool:
    bid, auction = pair["bid"], pair["auction"]
    return bool(auction["dateTime"] <= bid["dateTime"] <= auction["expires"])


def _higher(winning: Json, pair: Json) -> Json:
    return pair if pair["bid"]["price"] > winning["bid"]["price"] else winning
