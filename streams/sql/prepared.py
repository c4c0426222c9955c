"""What all queries that are ready to run can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Prepared(Protocol):
    """A query that is ready to run. One thread at a time."""

    def replace(self, name: str, rows: pa.Table) -> None:
        """Use these rows of a global table from the next call on; raises as the calls do.

        They have the columns key, value and timestamp. The query is planned again, which takes
        tenths of a second. At first, such a table is empty.
        """

    def close(self) -> None:
        """Release what the query holds."""
