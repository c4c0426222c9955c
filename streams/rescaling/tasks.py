"""The former and the new tasks that share keys when the number of tasks changes."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import pyarrow as pa

from kafka_pipeline.streams.backfill.partitions import NO_KEY, partitions_of


@dataclass(frozen=True, slots=True)
class Tasks:
    """The numbers of tasks before and after a change.

    The partition of a key is its hash modulo the number of tasks. So a former and a new task can
    share a key only if both are congruent modulo the greatest common divisor of the two numbers.
    Congruent tasks are a `group`.
    """

    before: int
    after: int

    @property
    def groups(self) -> int:
        """The number of groups, which are numbered from 0."""
        return gcd(self.before, self.after)

    @property
    def merged(self) -> int:
        """The number of former tasks that one task may get keys from: 1 if tasks are only split."""
        return self.before // self.groups

    def group_of(self, task: int) -> int:
        """Return the group of a task, former or new."""
        return task % self.groups

    def rank(self, former: int) -> int:
        """Return the index of a former task in its group."""
        return former // self.groups

    def former(self, task: int) -> range:
        """Return the former tasks that a task may get keys from."""
        return range(self.group_of(task), self.before, self.groups)

    def places_of_left(self, keys: pa.BinaryArray, partition: int) -> list[int]:
        """Return the new partitions of unread records of a repartition topic's partition.

        Records without a key may be in any partition. Raises `ValueError` for a key that the
        default partitioner would not have put there.
        """
        found = partitions_of(keys, self.before)
        if np.any((found != partition) & (found != NO_KEY)):
            raise ValueError("they are not in the partitions of their keys")
        places = partitions_of(keys, self.after)
        return np.where(places == NO_KEY, partition % self.after, places).tolist()  # type: ignore[no-any-return]
