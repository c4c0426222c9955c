"""What a `sql` or `dataframe` processor asks of Spark, as a value that travels to the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from common.errors import EngineError
from streams.errors import StreamsError

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["string", "binary", "json"]
FORMATS: tuple[Format, ...] = ("string", "binary", "json")

COLUMNS = ("key", "value", "timestamp", "partition", "offset", "headers")
"""The columns of a record."""


class QueryError(StreamsError):
    """Spark cannot compute what it is asked for; of a single record, `on_error` decides."""


class SparkLostError(EngineError):
    """Spark, or the way to it, failed; no record is to blame. The task starts again."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A query over the view `input`, or a function `package.module:name` of its DataFrame.

    `schema` is Spark's DDL, of the values of `format: json`. `tables` are as `read_tables` of
    `streams.pipeline.spark` returns them. `config` has the keyword arguments of the function.
    """

    query: str = ""
    function: str = ""
    format: Format = "string"
    schema: str = ""
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> str:
        """Return a text that is the same for the same content."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, code: str, options: Mapping[str, Any], config: Mapping[str, Any]) -> QuerySpec:
        """Return what a processor says by its code, options and config."""
        return cls(
            options.get("query", ""),
            code,
            options["format"],
            options["schema"],
            options["tables"],
            config,
        )

    @classmethod
    def from_json(cls, text: str) -> QuerySpec:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


class Query(Protocol):
    """A query that is ready to run. One thread at a time."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of `COLUMNS` that it needs."""

    def run(self, table: pa.Table) -> pa.Table:
        """Return the output of these records, in their order.

        It has the columns `value` and `timestamp` (milliseconds), and `key` and `headers` where
        the query gives them. Raises `QueryError` if a record may be to blame, or `SparkLostError`.
        """

    def close(self) -> None:
        """Let go of what it holds."""


class Queries(Protocol):
    """Where queries run: a Spark session here, or the TaskManager's driver."""

    def open(self, spec: QuerySpec) -> Query:
        """Get a query ready, which takes seconds at first.

        Raises `QueryError` with the reason if it cannot be run batch by batch, `SparkLostError`.
        """
