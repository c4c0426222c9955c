"""The interface of a table that a task writes, whatever its format is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from kafka_pipeline.common.kafka.clients import FencedError, NonRetriableError


class Table(Protocol):
    """One table, for one task. In the table, the task has an application id.

    Methods block. They raise `TransactionFailedError` if the table does not answer, and
    `NonRetriableError` if it does not take what is written.
    """

    def position(self) -> int | None:
        """Return the offset that was committed last; `None` if none was."""

    def misfit(self, rows: pa.RecordBatch) -> tuple[int, str]:
        """Return the index of the first row that cannot be written, and why.

        The reason, a sentence without values of records, is empty if all can be written. The index
        is then the number of rows.
        """

    def write(self, rows: Sequence[pa.RecordBatch], position: int, former: int | None) -> None:
        """Commit rows `of_changes`, and the position in place of the `former` one, in one step.

        Raises `FencedError`, and commits nothing, unless the position is still the `former` one.
        """


def lacking_columns(
    wanted: Mapping[str, tuple[Any, bool]],
    found: Mapping[str, tuple[Any, bool]],
    table: str,
    *,
    evolves: bool,
) -> list[str]:
    """Return the names of columns that a table lacks, if it `evolves` by adding them.

    Columns are given by name, with a type and whether they may be null. Raises `NonRetriableError`
    if those of the schema, `wanted`, and those of the table, `found`, differ otherwise.
    """
    differing = [
        name for name in dict.fromkeys((*wanted, *found)) if wanted.get(name) != found.get(name)
    ]
    lacking = [name for name, (_, nullable) in wanted.items() if nullable and name not in found]
    only_lacks = len(differing) == len(lacking)
    if differing and not (evolves and only_lacks):
        way_out = "Set `evolve: add` to add them" if only_lacks else "Make them equal"
        raise NonRetriableError(
            f"table {table} has other columns than the schema of the processor: "
            f"{', '.join(differing)}. {way_out}, or write another table"
        )
    return lacking


def overtaken(table: str, found: int | None, former: int | None) -> FencedError:
    """Return the error of an owner that finds another position than the `former` one it knows."""
    return FencedError(
        f"another owner of the task has committed to table {table}: its position is {found}, not "
        f"{former}"
    )


def missing_extra(error: ImportError) -> NonRetriableError:
    """Return the error of a task whose format needs a package that is not installed."""
    return NonRetriableError(
        f"tables need the package kafka-pipeline[tables] where their tasks run: {error}"
    )
