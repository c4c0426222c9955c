"""What a query says about a join of two inputs, in its text and in Spark's plan of it."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_pipeline.common.specs import JoinSide


@dataclass(frozen=True, slots=True)
class JoinText:
    """A join of two inputs, whose names are in small letters.

    Records meet if the right one is at most `before_ms` older and `after_ms` younger. `keeps` has
    the sides whose rows also have results without a partner.
    """

    left: str
    right: str
    keeps: tuple[JoinSide, ...]
    before_ms: int
    after_ms: int
