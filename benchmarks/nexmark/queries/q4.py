"""Average price for a category: the mean of the winning bids of its auctions.

A table knows what a higher bid replaces, so the former price is taken out of the mean.
"""

from __future__ import annotations

from benchmarks.nexmark.queries.streams import Json, builder, winning_bids
from kafka_pipeline import StreamsBuilder, agg, col


def build(sink: str) -> StreamsBuilder:
    """Return the topology; its results are a table by category."""
    made = builder()
    by_category = winning_bids(made).group_by(
        lambda auction, pair: (
            str(pair["auction"]["category"]),
            {"price": pair["bid"]["price"]},
        ),
        name="ByCategory",
    )
    means = by_category.agg("Means", final=agg.avg(col("price")))
    means.to_stream().map(_with_id).to(sink)
    return made


def _with_id(category: str, mean: Json) -> tuple[str, Json]:
    return category, {"id": int(category), **mean}
