"""What `context.count` of user code adds to its counters."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from numbers import Real

from kafka_pipeline.common.user_counter import user_counter
from kafka_pipeline.streams.engine.outputs import Counted
from kafka_pipeline.streams.errors import InvalidArgumentError


def counted(node: str, name: str, amount: float, labels: Mapping[str, str]) -> Counted:
    """Return what a node counts. Raises `InvalidArgumentError` for what cannot be counted."""
    if not isinstance(amount, Real) or not (isfinite(amount) and amount >= 0):
        raise InvalidArgumentError(
            f'"{node}" adds {amount!r} to the counter {name}: counters only grow, by finite '
            "numbers",
            shown=f'"{node}" adds a {type(amount).__name__} to a counter that is not a finite '
            "number from 0 on: counters only grow",
        )
    try:
        return Counted(user_counter(name, tuple(labels.items())), float(amount))
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f'"{node}": {error}',
            shown=f'"{node}" counts by a name or by labels that no counter can have',
        ) from None
