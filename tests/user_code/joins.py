"""Topologies of the DSL that bring topics together, or seem to."""

from __future__ import annotations

import re
from typing import Any

from kafka_pipeline import StreamsBuilder, serdes, windows
from kafka_pipeline.streams.engine.topology import Topology


def _pair(left: Any, right: Any) -> Any:
    return left + (right or b"")


def _first_letter(key: Any, value: Any) -> Any:
    return value[:1]


def of_streams(left: str, right: str, joined: str) -> Topology:
    """Join two streams, next to a stream that meets neither."""
    builder = StreamsBuilder()
    lefts, rights = builder.stream(left, name="Left"), builder.stream(right, name="Right")
    within = windows.join(before_ms=1, after_ms=1, grace_ms=0)
    lefts.join(rights, _pair, within, name="Both").to(joined)
    return builder.build()


def with_table(
    left: str, right: str, joined: str, partitions: int | None = None, table: int | None = None
) -> Topology:
    """Join a stream, after a repartition, with a table, which comes from another one if `table`."""
    builder = StreamsBuilder()
    moved = builder.stream(left, name="Left").select_key(_first_letter)
    if table is None:
        found = builder.table(right, name="Table")
    else:
        rights = builder.stream(right, name="Right").repartition(name="Spread", partitions=table)
        found = rights.to_table(name="Table")
    moved.repartition(name="Moved", partitions=partitions).join(found, _pair).to(joined)
    return builder.build()


def of_repartitions(left: str, right: str, joined: str) -> Topology:
    """Join two streams after a repartition each."""
    builder = StreamsBuilder()
    lefts = builder.stream(left, name="Left").repartition(name="LeftAgain")
    rights = builder.stream(right, name="Right").repartition(name="RightAgain")
    within = windows.join(before_ms=1, after_ms=1, grace_ms=0)
    lefts.join(rights, _pair, within, name="Both").to(joined)
    return builder.build()


def with_own_repartition(left: str, joined: str) -> Topology:
    """Join a stream with what it is after a repartition, in one task."""
    builder = StreamsBuilder()
    lefts = builder.stream(left, name="Left")
    within = windows.join(before_ms=1, after_ms=1, grace_ms=0)
    lefts.join(lefts.repartition(name="Again"), _pair, within, name="Both").to(joined)
    return builder.build()


def merged(left: str, right: str, joined: str, counts: bool) -> Topology:
    """Merge two streams, and count the records by key or pass them on."""
    builder = StreamsBuilder()
    both = builder.stream(left, name="Left").merge(builder.stream(right, name="Right"))
    if counts:
        both.group_by_key().count(name="Counts").to_stream().to(joined)
    else:
        both.to(joined)
    return builder.build()


def found_by_pattern(pattern: str, names: str, found: str) -> StreamsBuilder:
    """Look records of all topics that match up in a table."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    lines = builder.stream(re.compile(pattern), name="Lines")
    lines.join(builder.table(names, name="Names"), lambda line, name: name, name="Found").to(found)
    return builder


def by_foreign_key(left: str, right: str, joined: str, swapped: bool = False) -> StreamsBuilder:
    """Join a table with another one by a foreign key, or that one with it, and both by their keys.

    So the stores of both are in one group.
    """
    builder = StreamsBuilder()
    tables = builder.table(left, name="Left"), builder.table(right, name="Right")
    one, other = reversed(tables) if swapped else tables
    found = one.left_join(other, _pair, foreign_key=_first_letter, name="Both")
    found.to_stream().to(joined)
    tables[0].join(tables[1], _pair, name="ByKey").to_stream().to(f"{joined}-by-key")
    return builder


def of_table(source: str, counted: str, counts: bool = False) -> StreamsBuilder:
    """Keep a table of a topic, or count its records by their first letters."""
    builder = StreamsBuilder()
    if counts:
        records = builder.stream(source, name="Records").group_by(_first_letter, name="ByLetter")
        records.count(name="Kept").to_stream().to(counted)
    else:
        builder.table(source, name="Kept").to_stream().to(counted)
    return builder
