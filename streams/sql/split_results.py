"""Results that consist of columns of the records, as they are, and of what Spark computes.

Most results pass fields on. Those need not go to Spark and come back as text: they are taken from
the records that Arrow has read, and their JSON is joined here, a column at a time. It is what
`to_json` of Spark writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.arrow_json import RowsWithColumns, has_escapes
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.columns import binary_items, header_items, times_of
from kafka_pipeline.streams.sql.spec import RECORD

ESCAPED = re.compile(r'["\\\x00-\x1f]')
"""The characters that JSON escapes in a string; Java reads the pattern as Python does."""

_ESCAPES = {
    **{number: f"\\u{number:04X}" for number in range(0x20)},
    **{ord(plain): "\\" + short for plain, short in zip("\b\t\n\f\r", "btnfr", strict=True)},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a JSON object.

    Either the field `column` of records under a `name`, or, without a name, a column of Spark's
    output, which has an object with one member or several.
    """

    column: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class SplitResults:
    """How results are made of records and of what Spark gives for these.

    `members` are those of the JSON value; `None` if the value of a record is passed on as it is.
    `needed` are the columns of a table of records that Spark needs. Without any, each record gives
    one result, in which Spark has no part. Otherwise, its output has `RECORD`, the index of the
    record that a result stems from, and `key`, `timestamp` and `headers` unless they are passed on
    or not given.
    """

    members: tuple[Member, ...] | None
    passes_key: bool
    passes_time: bool
    needed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        members = None
        if self.members is not None:
            members = [[each.column, each.name] for each in self.members]
        return {
            "members": members,
            "passes_key": self.passes_key,
            "passes_time": self.passes_time,
            "needed": list(self.needed),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> SplitResults | None:
        """Read what `to_json` gave, or nothing."""
        if values is None:
            return None
        members = values["members"]
        return cls(
            None if members is None else tuple(Member(*each) for each in members),
            values["passes_key"],
            values["passes_time"],
            tuple(values["needed"]),
        )

    def is_possible(self, table: pa.Table) -> bool:
        """Whether records have been read so that their fields can be passed on."""
        return self.members is None or "value" not in table.column_names

    def for_spark(self, table: pa.Table) -> pa.Table | None:
        """Return what Spark needs of records; `None` for nothing."""
        if not self.needed:
            return None
        numbers = pa.array(np.arange(len(table)))
        named = [name for name in self.needed if name != RECORD]
        return table.select(named).append_column(RECORD, numbers)

    def results(self, batch: Batch, table: pa.Table, given: pa.Table | None) -> Batch:
        """Return the results of records, of which a `table` was made, and of Spark's output.

        That is `None` if nothing is `needed`. Raises `StreamsError` as `batch_of` does.
        """
        if given is None:
            return self._joined(batch, table, {}, None)
        others = {name: given[name] for name in given.column_names}
        numbers = others[RECORD].to_numpy()
        is_each = np.array_equal(numbers, np.arange(len(batch)))
        return self._joined(batch, table, others, None if is_each else numbers)

    def _joined(
        self, batch: Batch, table: pa.Table, others: Mapping[str, Any], numbers: _Numbers | None
    ) -> Batch:
        """Return results; `numbers` has the record of each, `None` for all of them in order."""
        if self.passes_key:
            keys = _taken(batch.keys, numbers)
        elif "key" in others:
            keys = binary_items(others["key"])
        else:
            keys = [None] * len(table if numbers is None else numbers)
        if self.members is None:
            values = _taken(batch.values, numbers)
        else:
            values = _objects(self.members, table, others, numbers)
        if self.passes_time:
            timestamps = _taken(items_of(batch.timestamps), numbers)
        else:
            timestamps = times_of(others["timestamp"])
        headers = header_items(others["headers"]) if "headers" in others else None
        return Batch(keys, values, timestamps, headers)


def _taken(items: Sequence[Any], numbers: _Numbers | None) -> Sequence[Any]:
    return items if numbers is None else [items[number] for number in numbers.tolist()]


def _objects(
    members: Sequence[Member],
    table: pa.Table,
    others: Mapping[str, pa.ChunkedArray],
    numbers: _Numbers | None,
) -> RowsWithColumns:
    """Return JSON objects with these members."""
    parts: list[Any] = []
    passed: dict[str, pa.Array] = {}
    computed: list[pa.Array] = []
    literal = "{"
    for index, member in enumerate(members):
        literal += "," if index else ""
        if member.name is None:
            computed.append(others[member.column].combine_chunks())
            parts += [literal, _without_braces(computed[-1])]
            literal = ""
            continue
        literal += f'"{member.name}":'
        column = table[member.column]
        column = (column if numbers is None else column.take(numbers)).combine_chunks()
        passed[member.name] = column
        if column.type != pa.string():
            parts += [literal, column.cast(pa.string()).fill_null("null")]
            literal = ""
        elif column.null_count:
            quoted = pc.binary_join_element_wise('"', escaped(column), '"', "")
            parts += [literal, quoted.fill_null("null")]
            literal = ""
        else:
            parts += [literal + '"', escaped(column)]
            literal = '"'
    joined = pc.binary_join_element_wise(*parts, literal + "}", "")
    return RowsWithColumns(binary_items(pa.chunked_array([joined])), passed, computed)


def _without_braces(objects: pa.StringArray) -> pa.StringArray:
    return pc.binary_slice(objects.view(pa.binary()), 1, -1).view(pa.string())


def escaped(column: pa.StringArray) -> pa.StringArray:
    """Return strings as JSON has them between quotes, in the way of Spark's writer."""
    if not has_escapes(column):
        return column
    is_special = pc.match_substring_regex(column, ESCAPED.pattern).fill_null(False)
    made = [text.translate(_ESCAPES) for text in column.filter(is_special).to_pylist()]
    return pc.replace_with_mask(column, is_special, pa.array(made, pa.string()))
