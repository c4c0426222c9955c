"""Where the records of a topic are that the brokers have deleted, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kafka_pipeline.common.typed_json import Strict

HistoryFormat = Literal["delta", "iceberg", "parquet"]
RecordPart = Literal["key", "timestamp", "partition", "offset"]


class HistorySpec(Strict, frozen=True, kw_only=True):
    """A table with the records of a topic that the brokers have deleted.

    `written_by` is the processor of `type: table` that writes it from this topic, with its job, as
    `job/processor`. `record_columns` names the columns of all parts of records. The place is as in
    a `TableSinkSpec`.
    """

    format: HistoryFormat
    path: str = ""
    catalog: Mapping[str, str] = {}
    table: str = ""
    written_by: str
    record_columns: Mapping[RecordPart, str]
