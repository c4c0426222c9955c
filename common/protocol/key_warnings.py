"""Warnings that records with equal keys do not meet, as `pipeline status` shows them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

KEYS_DO_NOT_MEET = "records with the same key do not meet"
"""The event's name in the log."""

_SEE = 'docs/how-to/troubleshoot.md, "Records with the same key do not meet"'


class KeyProblem(StrEnum):
    """Why records with the same key do not meet."""

    PARTITIONS = "partitions"
    """They are in partitions that another partitioner has chosen."""

    BYTES = "bytes"
    """Their bytes differ from those that the serde of the keys would write."""


class KeyWarning(Struct, frozen=True):
    """Keys of `topic` do not meet all keys of the `others` in the step `step`.

    `found` is the partitioner that would have chosen the partitions, "" if none is known, or the
    name of the serde that would write other bytes.
    """

    topic: str
    problem: KeyProblem
    step: str
    others: tuple[str, ...]
    found: str

    @property
    def text(self) -> str:
        """What is wrong, and what to do, for a log or a terminal."""
        met = f'those of {", ".join(self.others)} with the same key in "{self.step}"'
        if self.problem is KeyProblem.BYTES:
            return (
                f"{self.topic} has keys with other bytes than the serde {self.found} would write, "
                f"so their records may not meet {met}: put repartition() after the source, or let "
                f"the producers write keys like the serde; see {_SEE}"
            )
        fits = f"those of {self.found} do" if self.found else "nor those of any other that is known"
        return (
            f"{self.topic} has keys in other partitions than murmur2_random would choose "
            f"({fits}), so most of their records do not meet {met}: put repartition() after the "
            f"source, or give the producers partitioner=murmur2_random; see {_SEE}"
        )
