"""Which tasks of before have keys of which tasks, if the number of tasks changes."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import pyarrow as pa

from kafka_pipeline.streams.backfill.partitions import NO_KEY, partitions_of


@dataclass(frozen=True, slots=True)
class Tasks:
    """The numbers of tasks before and after a change.

    The partition of a key is the remainder of its hash. So a task of before and one of afterwards
    can have a key in common only if both have the same remainder by the greatest common divisor of
    the numbers of tasks. The tasks with the same remainder are a `group`.
    """

    before: int
    after: int

    @property
    def groups(self) -> int:
        """How many groups there are; their numbers begin with 0."""
        return gcd(self.before, self.after)

    @property
    def merged(self) -> int:
        """How many tasks of before may have keys of one task: 1 if they are only divided."""
        return self.before // self.groups

    def group_of(self, task: int) -> int:
        """Return the group of a task, of before or afterwards."""
        return task % self.groups

    def rank(self, former: int) -> int:
        """Return the place of a task of before among those of its group."""
        return former // self.groups

    def former(self, task: int) -> range:
        """Return the tasks of before whose keys a task may have."""
        return range(self.group_of(task), self.before, self.groups)

    def places_of_left(self, keys: pa.BinaryArray, partition: int) -> list[int]:
        """Return the new partitions of records that waited in a partition of an arc.

        Records without a key may be anywhere. Raises `ValueError` if a key belongs to another
        partition: what has sent it there is not known here.
        """
        found = partitions_of(keys, self.before)
        if np.any((found != partition) & (found != NO_KEY)):
            raise ValueError("they are not in the partitions of their keys")
        places = partitions_of(keys, self.after)
        return np.where(places == NO_KEY, partition % self.after, places).tolist()  # type: ignore[no-any-return]
