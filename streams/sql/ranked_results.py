"""What changes in the results of functions that rank rows, by key."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_pipeline.streams.sql.columns import with_items
from kafka_pipeline.streams.sql.state_shape import Merged


def changes_of_ranks(merged: Merged, were_given: Sequence[bool]) -> pa.Table:
    """Return deletions of results that have gone, and then those that are new or have changed.

    `were_given` says which groups have given their former results. A key has the last one of its
    results in a group, in the order of their places: that of the others is not given. So the result
    is a table, even if rows that tie have one key. Results without a key are given once.
    """
    keys = merged.results["key"].to_pylist()
    before: dict[tuple[int, bytes | None, int], int] = {}
    now: dict[tuple[int, bytes | None, int], int] = {}
    rows = zip(
        merged.group_of.tolist(),
        keys,
        merged.marks.tolist(),
        merged.is_former.tolist(),
        strict=True,
    )
    for index, (group, key, mark, is_former) in enumerate(rows):
        if mark and (not is_former or were_given[group]):
            found = before if is_former else now
            # Nothing replaces a result without a key, so each is known by its mark.
            found[group, key, mark if key is None else 0] = index
    marks = merged.marks
    changed = [
        index
        for id_, index in now.items()
        if id_ not in before or marks[before[id_]] != marks[index]
    ]
    gone = [index for id_, index in before.items() if id_ not in now and id_[1] is not None]
    deleted = merged.results.take(pa.array(gone, pa.int64()))
    for name in {"value", "headers"} & {*deleted.column_names}:
        nothing = pa.nulls(len(gone), deleted.schema.field(name).type)
        deleted = with_items(deleted, name, nothing)
    return pa.concat_tables([deleted, merged.results.take(pa.array(changed, pa.int64()))])
