"""Average selling price by seller: the mean of the last eleven winning bids on his auctions.

A bid looks up its auction, which has the same key and is older. The winning bids of a seller are
kept in the order of time; a higher bid on an auction replaces the former one.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

from kafka_pipeline import Stream, StreamsBuilder, Table, serdes

LAST = 11
"""The official query says `ROWS BETWEEN 10 PRECEDING AND CURRENT ROW`."""

Json = dict[str, Any]

Sale = list[int]
"""The time of a bid, its auction, and its price."""

Offer = tuple[int, Sale]
"""The seller, and what becomes a sale if no bid is higher."""


def build(sink: str) -> StreamsBuilder:
    """Return the topology; its results are a table by seller.

    Keys are ids in decimal digits, and values are JSON.
    """
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    auctions: Table[str, Json] = builder.table("auction", name="Auctions")
    bids: Stream[str, Json] = builder.stream("bid", name="Bids")
    pairs: Stream[str, tuple[Json, Json]] = bids.join(auctions, lambda *pair: pair)
    offers = pairs.flat_map_values(_offers)
    winning = offers.group_by_key().reduce(_higher, name="Winning")
    sales = winning.group_by(_by_seller, name="BySeller")
    lists = sales.aggregate(list[Sale], _add, _remove, name="Sales")
    lists.to_stream().map(_mean).to(sink)
    return builder


def _offers(pair: tuple[Json, Json]) -> list[Offer]:
    bid, auction = pair
    if not auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
        return []
    return [(auction["seller"], [bid["dateTime"], auction["id"], bid["price"]])]


def _higher(winning: Offer, offer: Offer) -> Offer:
    return offer if offer[1][2] > winning[1][2] else winning


def _by_seller(_auction: str, offer: Offer) -> tuple[str, Sale]:
    seller, sale = offer
    return str(seller), sale


def _add(_seller: str, sale: Sale, sales: list[Sale]) -> list[Sale]:
    insort(sales, sale)
    return sales


def _remove(_seller: str, sale: Sale, sales: list[Sale]) -> list[Sale]:
    sales.remove(sale)
    return sales


def _mean(seller: str, sales: list[Sale]) -> tuple[str, Json | None]:
    prices = [price for _, _, price in sales[-LAST:]]
    if not prices:
        return seller, None
    return seller, {"seller": int(seller), "avg_price": sum(prices) / len(prices)}
