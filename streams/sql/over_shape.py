"""What a query with `OVER (…)` keeps and gives, as values that cross processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import OverSpec, OverStage
from kafka_pipeline.streams.sql.arrow_bytes import packed, unpacked
from kafka_pipeline.streams.sql.spec import Prepared, QueryError, StateChange
from kafka_pipeline.streams.sql.state_change import is_wider, widened

if TYPE_CHECKING:
    from kafka_pipeline.streams.sql.json_fields import JsonFields

EXAMPLE = (
    "sum(x) OVER (PARTITION BY key ORDER BY timestamp RANGE BETWEEN INTERVAL '1 hour' PRECEDING "
    "AND CURRENT ROW)"
)

UNBOUNDED = (
    "OVER (…) over all rows so far would keep them forever: give a frame such as ROWS BETWEEN 9 "
    f"PRECEDING AND CURRENT ROW, or one by time, as in {EXAMPLE}"
)

_ROUTE, _THROUGH_TOPIC = "route", "through an internal topic"

PLACE = "__place"
"""A column of rows and of their results: the number of the row in the order of the frames."""

IS_DUE = "__is_due"
"""A column of rows: whether the row gets a result, or is only in the frames of others."""

ORIGIN = ("timestamp", "partition", "offset")
"""The columns of rows that say which record each stems from, and their order."""


@dataclass(frozen=True, slots=True)
class OverShape:
    """What is kept of a record.

    `rows` are the types of rows: first the columns of PARTITION BY, as many as `partitions`, and
    then those that the query uses. Frames reach `rows_before` rows and `range_ms` back. `columns`
    says what is kept: two queries can use the same state if it is the same. `key_column` is the
    column of PARTITION BY that is the key of the records, `None` if none is.
    """

    rows: pa.Schema
    partitions: int
    rows_before: int
    range_ms: int
    columns: Sequence[str]
    key_column: str | None

    @property
    def groups(self) -> pa.Schema:
        """The columns of PARTITION BY."""
        return pa.schema([*self.rows][: self.partitions])

    @property
    def given(self) -> pa.Schema:
        """The types of rows that get results."""
        time = pa.field("timestamp", pa.timestamp("us", tz="UTC"))
        return pa.schema([*self.rows, time, (PLACE, pa.int64()), (IS_DUE, pa.bool_())])

    def content_at(self, stage: OverStage) -> str:
        """Return JSON that says what is kept at a stage, with what `KeyColumn` needs."""
        if stage == "frames":
            return json.dumps({"over": [*self.columns], _ROUTE: _THROUGH_TOPIC})
        others = {"key_column": self.key_column, "key_columns": packed(self.groups)}
        return json.dumps({"over": [*self.columns], **others})

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "rows": packed(self.rows),
            "partitions": self.partitions,
            "rows_before": self.rows_before,
            "range_ms": self.range_ms,
            "columns": [*self.columns],
            "key_column": self.key_column,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> OverShape:
        """Read what `to_json` gave."""
        return cls(**{**values, "rows": unpacked(values["rows"])})


def require_over_as_planned(found: OverShape, over: OverSpec) -> None:
    """Raise `QueryError` if Spark reads the frames of a query in another way than its text was."""
    if over.stage == "whole" and found.key_column is None:
        raise QueryError(
            "PARTITION BY of OVER (…) has a column key that is not the key of the records: give it "
            "another name"
        )
    if found.range_ms != over.range_ms or (found.rows_before and not over.counts_rows):
        raise QueryError(
            f"for Spark, the frames of OVER (…) reach {found.rows_before} rows and "
            f"{found.range_ms} ms back, and the text was read as {over.range_ms} ms: write them as "
            f"in {EXAMPLE}"
        )


def over_change(over: OverSpec, kept: str, wanted: str) -> StateChange:
    """Compare the content of a state with that of a query; decimals may get more digits."""
    if different := declared_over_difference(over, kept):
        return StateChange(different)
    before, now = json.loads(kept)["over"], json.loads(wanted)["over"]
    if len(before) != len(now) or not all(
        is_wider(*both, "row") for both in zip(before, now, strict=True)
    ):
        return StateChange(
            f"it has the columns {', '.join(before)}, and now {', '.join(now)} are needed"
        )
    return StateChange(converted=widened([*zip(before, now, strict=True)]))


def declared_over_difference(over: OverSpec, kept: str) -> str:
    """Return what pipeline.yaml alone shows to differ from a content that was kept; "" if nothing.

    The rest, such as the columns that are kept, only Spark knows.
    """
    before = json.loads(kept)
    if "over" not in before:
        return "it was not kept for OVER (…)"
    if (_ROUTE in before) != (over.stage == "frames"):
        met, meet = "by their key", _THROUGH_TOPIC
        if _ROUTE in before:
            met, meet = meet, met
        return f"the records of a group met {met}, and now meet {meet}"
    return ""


class PreparedOver(Prepared, Protocol):
    """A query with `OVER (…)`, ready to run.

    Both calls raise `QueryError` if a record may be to blame, otherwise `SparkLostError`.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of records that the query needs."""

    @property
    def fields(self) -> JsonFields | None:
        """See `SparkQuery`."""

    @property
    def shape(self) -> OverShape:
        """What the query keeps; it stays the same when lookup tables are read again."""

    def rows(self, records: pa.Table) -> pa.Table:
        """Return the rows of records, in their order: those of the shape, and their `ORIGIN`."""

    def results(self, rows: pa.Table) -> pa.Table:
        """Return what `SparkQuery.run` returns for rows that are due, and the `PLACE` of each."""
