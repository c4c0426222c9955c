"""Windows and joins of numbered records, for the chaos harness.

The n-th record of a key has the value `base + n`. Every result says what it is for: the harness
knows what must come, and in which order (`tests/chaos/dsl_ledger.py`).
"""

from __future__ import annotations

import re
from functools import partial

from kafka_pipeline import StreamsBuilder, serdes, stores, windows
from kafka_pipeline.streams.engine.topology import Topology

WINDOW_MS = 100
SHORT_GRACE_MS = 50
"""Long enough for records of a source partition, in which keys have about the same times."""
LONG_GRACE_MS = 600_000
"""Longer than any fault holds up one of the ways to a join or a repartition topic."""
PARTNERLESS = 3
"""The left join finds no partner for every third number."""
ORDERS_EVERY = 4
"""Every fourth number of a key is a change of its order."""
RATES_EVERY = 8
"""Every eighth number of the first keys is a change of a rate."""
RATES = 4
"""How many rates there are. The rate `r0` has the numbers of the key `k00`, and so on."""
BUCKETS = 4

_KEY = re.compile(rb"k(\d\d)")


def _shown(what: bytes, windowed: stores.Windowed[bytes], value: int) -> tuple[bytes, bytes]:
    return windowed.key, b"dsl %s %d %d" % (what, windowed.window.start, value)


def rate_of(number: int) -> int:
    """Return which rate an order refers to."""
    return number // ORDERS_EVERY % RATES


def bucket_of(key: bytes) -> bytes:
    """Return the bucket of a key."""
    return b"bucket%d" % (_index(key) % BUCKETS)


def build(base: int) -> Topology:
    """Count and sum in windows, join streams, and join tables by a foreign key."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    numbers = (
        builder.stream("source", name="Numbered")
        .filter(lambda key, value: key is not None and _KEY.fullmatch(key) is not None)
        .map_values(lambda value: int(value) - base, value_serde=serdes.int64)
    )
    counted = (
        numbers.group_by_key()
        .windowed_by(windows.tumbling(WINDOW_MS, grace_ms=LONG_GRACE_MS))
        .count(name="Counted")
    )
    summed = (
        numbers.group_by_key()
        .windowed_by(windows.tumbling(WINDOW_MS, grace_ms=SHORT_GRACE_MS), emit="on_close")
        .reduce(lambda total, number: total + number, name="Summed", value_serde=serdes.int64)
    )
    buckets = (
        numbers.group_by(lambda key, number: bucket_of(key), name="Bucketed")
        .windowed_by(windows.tumbling(WINDOW_MS, grace_ms=LONG_GRACE_MS), emit="on_close")
        .reduce(lambda total, number: total + number, name="Buckets", value_serde=serdes.int64)
    )
    for what, table in ((b"count", counted), (b"sum", summed), (b"bucket", buckets)):
        table.to_stream().map(partial(_shown, what)).to("sink")
    partners = numbers.filter(lambda key, number: number % PARTNERLESS != 0).repartition(
        name="Partners"
    )
    numbers.left_join(
        partners,
        lambda left, right: b"dsl join %d %d" % (left, right or 0),
        windows.join(before_ms=0, after_ms=0, grace_ms=LONG_GRACE_MS),
        name="Joined",
        value_serde=serdes.bytes,
    ).to("sink")
    orders = numbers.filter(lambda key, number: number % ORDERS_EVERY == 0).to_table(name="Orders")
    rates = (
        numbers.filter(
            lambda key, number: number % RATES_EVERY == 0 and _index(key) < RATES,
        )
        .select_key(lambda key, number: b"r%d" % _index(key))
        .to_table(name="Rates")
    )
    orders.left_join(
        rates,
        lambda order, rate: b"dsl rate %d %d" % (order, rate or 0),
        foreign_key=lambda order: b"r%d" % rate_of(order),
        name="Rated",
        value_serde=serdes.bytes,
    ).to_stream().to("sink")
    return builder.build()


def _index(key: bytes) -> int:
    return int(key[1:])
