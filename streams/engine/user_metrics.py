"""What `context.count` and `context.gauge` of user code add to the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any

from kafka_pipeline.common.user_series import UserSeries, user_series
from kafka_pipeline.streams.engine.outputs import Counted, Gauged
from kafka_pipeline.streams.errors import InvalidArgumentError


def counted(node: str, name: str, amount: float, labels: Mapping[str, str]) -> Counted:
    """Return what a node counts. Raises `InvalidArgumentError` for what cannot be counted."""
    if not _is_finite(amount) or amount < 0:
        raise InvalidArgumentError(
            f'"{node}" adds {amount!r} to the counter {name}: counters only grow, by finite '
            "numbers",
            shown=f'"{node}" adds a {type(amount).__name__} to a counter that is not a finite '
            "number from 0 on: counters only grow",
        )
    return Counted(_series(node, name, labels), float(amount))


def gauged(node: str, name: str, value: float, labels: Mapping[str, str]) -> Gauged:
    """Return what a node measures. Raises `InvalidArgumentError` for what is not a number."""
    if not _is_finite(value):
        raise InvalidArgumentError(
            f'"{node}" sets the gauge {name} to {value!r}: give it a finite number',
            shown=f'"{node}" sets a gauge to a {type(value).__name__} that is not a finite number',
        )
    return Gauged(_series(node, name, labels), float(value))


def _is_finite(number: Any) -> bool:
    return isinstance(number, Real) and isfinite(number)


def _series(node: str, name: str, labels: Mapping[str, str]) -> UserSeries:
    try:
        return user_series(name, tuple(labels.items()))
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f'"{node}": {error}',
            shown=f'"{node}" counts or measures by a name or by labels that no metric can have',
        ) from None
