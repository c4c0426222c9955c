"""Draws groups of the results of a query."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.random_sql.aggregates import Aggregates, Records
from tests.random_sql.expressions import Drawing
from tests.random_sql.queries import Again, Item, Query, Shape
from tests.random_sql.sources import conditions, grouping, key_of_groups

_AS_JSON = ("STRING", "INT", "BIGINT", "BOOLEAN", "DATE", "DOUBLE")
"""Kinds whose values are the same after they have been JSON. Timestamps lose microseconds there."""
_WITHIN = (*_AS_JSON, "DECIMAL", "TIMESTAMP")


def again(chance: random.Random, draw: Callable[[], Query], processors: int = 1) -> Query:
    """Return a query whose results are grouped once more."""
    kinds = _WITHIN if processors == 1 else _AS_JSON
    inner, seen = draw(), dict[str, str]()
    for _ in range(50):
        if seen := _visible(inner, kinds, processors):
            break
        inner = draw()
    changes = inner.is_table
    drawing = Drawing(chance, seen)
    groups = grouping(chance, drawing, None)
    records = Records.CHANGES if changes else Records.RESULTS
    aggregates = Aggregates(chance, drawing, records=records)
    found = Again(
        items=tuple(Item(f"w{place}", aggregates.one()) for place in range(chance.randint(1, 3))),
        key=key_of_groups(groups),
        groups=groups,
        schema=seen,
        where=conditions(chance, drawing),
        having=aggregates.having(),
        processors=processors,
        is_cte=processors == 1 and chance.random() < 0.3,
    )
    if processors == 1 and inner.shape in (Shape.GROUPS, Shape.JOIN):
        inner = replace(inner, key=None)
    if processors > 1:
        kept = tuple(each for each in inner.items if each.name in seen)
        inner = replace(inner, items=kept)
    return replace(inner, again=found)


def _visible(query: Query, kinds: tuple[str, ...], processors: int) -> dict[str, str]:
    """Return the columns of a query by name that can be grouped; none if they cannot."""
    if query.is_table and processors == 1 and (query.files or query.topic_tables):
        return {}  # refused: the processor has a table, and records that are updates
    if query.window is not None and query.window.sql.startswith("calendar_window"):
        return {}  # the judge leaves out windows before 1970 by their columns, which are not here
    if processors > 1 and not query.is_table:
        return {}
    return {
        each.name: each.expression.kind for each in query.items if each.expression.kind in kinds
    }
