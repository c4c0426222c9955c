"""Average selling price by seller: the mean of the last eleven winning bids on his auctions.

The winning bids of a seller are kept in the order of time; a higher bid on an auction replaces the
former one.
"""

from __future__ import annotations

from bisect import insort

from benchmarks.nexmark.queries.streams import Json, builder, winning_bids
from kafka_pipeline import StreamsBuilder

LAST = 11
"""The official query says `ROWS BETWEEN 10 PRECEDING AND CURRENT ROW`."""

Sale = list[int]
"""The time of a bid, its auction, and its price."""


def build(sink: str) -> StreamsBuilder:
    """Return the topology; its results are a table by seller."""
    made = builder()
    sales = winning_bids(made).group_by(_by_seller, name="BySeller")
    lists = sales.aggregate(list[Sale], _add, _remove, name="Sales")
    lists.to_stream().map(_mean).to(sink)
    return made


def _by_seller(_auction: str, pair: Json) -> tuple[str, Sale]:
    bid, auction = pair["bid"], pair["auction"]
    return str(auction["seller"]), [bid["dateTime"], auction["id"], bid["price"]]


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
