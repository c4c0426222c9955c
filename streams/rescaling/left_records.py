"""Where records go that wait between processors which cannot be drained."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_pipeline.streams.backfill.partitions import NO_KEY, partitions_of
from kafka_pipeline.streams.rescaling.tasks import Tasks


def places_of_left(keys: pa.BinaryArray, partition: int, tasks: Tasks) -> list[int]:
    """Return the new partitions of records that waited in a partition.

    Records without a key may be anywhere. Raises `ValueError` if a key belongs to another
    partition: what has sent it there is not known here.
    """
    found = partitions_of(keys, tasks.before)
    if np.any((found != partition) & (found != NO_KEY)):
        raise ValueError("they are not in the partitions of their keys")
    places = partitions_of(keys, tasks.after)
    return np.where(places == NO_KEY, partition % tasks.after, places).tolist()  # type: ignore[no-any-return]
