"""The operators that random topologies consist of: each adds one step, and parents if it must."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.differential import aggregate_operators as aggregates
from tests.differential import join_operators as joins
from tests.differential import stateless_operators as stateless
from tests.differential.drawing import Drawing, Node

Operator = Callable[[Drawing], Node]

# Suppress. Limits in bytes are left out: they count the bytes of Java's buffer entries.


def _suppress_until_close(draw: Drawing) -> Node:
    """Add a suppress of windows that their ends do not belong to.

    Kafka Streams forwards sliding windows and sessions before the last record that is not late.
    """
    table = draw.pick("table", lambda node: node.is_close_known)
    table = table or draw.one_of(aggregates.tumbling, aggregates.hopping)(draw)
    args = {"wait_ms": None, "max_records": draw.one_of(None, None, 4), "when_full": "fail"}
    return draw.add(
        "suppress",
        [table],
        args,
        "table",
        multiple=True,
        close_known=True,
        sends_wrong_olds=True,
    )


def _suppress_for_a_time(draw: Drawing) -> Node:
    table = draw.table(lambda node: not node.is_versioned)
    if table.is_versioned:
        table = draw.source("table", "table")
    args = {
        "wait_ms": draw.ms(0, 5, 20),
        "max_records": draw.one_of(None, 1, 2),
        "when_full": draw.one_of("emit_early", "emit_early", "fail"),
    }
    return draw.add(
        "suppress",
        [table],
        args,
        "table",
        multiple=True,
        close_known=table.is_close_known,
        sends_wrong_olds=True,
    )


OPERATORS: Mapping[str, tuple[int, Operator]] = {
    "filter": (3, stateless.filter),
    "map_values": (3, stateless.map_values),
    "map": (1, stateless.map),
    "flat_map": (1, stateless.flat_map),
    "flat_map_values": (1, stateless.flat_map_values),
    "select_key": (3, stateless.select_key),
    "peek": (1, stateless.peek),
    "merge": (2, stateless.merge),
    "split": (2, stateless.split),
    "repartition": (1, stateless.repartition),
    "to_table": (2, stateless.to_table),
    "to_stream": (3, stateless.to_stream),
    "count": (3, aggregates.count),
    "tumbling": (3, aggregates.tumbling),
    "hopping": (3, aggregates.hopping),
    "sliding": (3, aggregates.sliding),
    "session": (3, aggregates.session),
    "cogroup": (3, aggregates.cogroup),
    "table_aggregate": (3, aggregates.table_aggregate),
    "stream_join": (5, joins.stream_join),
    "table_lookup": (3, joins.table_lookup),
    "table_lookup_with_grace": (2, joins.table_lookup_with_grace),
    "global_lookup": (2, joins.global_lookup),
    "table_join": (4, joins.table_join),
    "foreign_key_join": (3, joins.foreign_key_join),
    "suppress_until_close": (2, _suppress_until_close),
    "suppress_for_a_time": (2, _suppress_for_a_time),
}
"""Each with the weight of its being drawn."""
