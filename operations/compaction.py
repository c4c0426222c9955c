"""Compacts a Delta table: joins small files, and deletes those that no reader needs any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.delta_storage import storage_options
from kafka_pipeline.common.errors import ConfigError, UnavailableError

MOST_TRIES = 10
"""How often files are joined if a merge of a task, or somebody else, has changed them meanwhile."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of the files of a table."""

    joined: int
    """The number of files that were joined."""
    made: int
    """The number of files that were made of them."""
    deleted: int
    """The number of files of former versions that were deleted."""


def compact(path: str) -> Compacted | None:
    """Join the small files of a table, and delete those that are out of use; `None` without it.

    Files that former versions of the table have are deleted once they were out of use for
    `delta.deletedFileRetentionDuration`, a week by default, so that readers of these can end.

    Tasks may write meanwhile. Joining files leaves each row as it is, so it only conflicts with
    those who replace or delete rows. If they are first, it begins again; if it is, they do.

    Blocks for as long as that takes. Raises `UnavailableError` if the storage does not answer or
    others are always first, and `ConfigError` without deltalake.
    """
    try:
        import deltalake
    except ImportError as error:
        raise ConfigError(f"it needs the package kafka-pipeline[tables]: {error}") from error
    try:
        table = deltalake.DeltaTable(path, storage_options=storage_options(path))
        metrics = _joined(table, deltalake.exceptions.CommitFailedError)
        deleted = table.vacuum(dry_run=False)
    except deltalake.exceptions.TableNotFoundError:
        return None
    except (deltalake.exceptions.DeltaError, OSError) as error:
        raise UnavailableError(f"table {path}: {error}") from error
    return Compacted(metrics["numFilesRemoved"], metrics["numFilesAdded"], len(deleted))


def _joined(table: Any, conflict: type[Exception]) -> Any:
    for tries in range(1, MOST_TRIES + 1):
        try:
            return table.optimize.compact()
        except conflict:
            if tries == MOST_TRIES:
                raise
            table.update_incremental()
    raise AssertionError("the last try returns or raises")
