"""What comes of a run of a topology, on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Written = tuple[Any, Any, int]
"""Key, value and timestamp; a windowed key is (key, start, end)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The records of each output topic, in order, and the error that ended the run."""

    outputs: Mapping[str, Sequence[Written]]
    error: str | None
    inputs: int
    """How many inputs were processed before the error, or all."""
