"""Suppression: which updates of a table are held back, and for how long (KIP-328)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

from kafka_pipeline.streams.dsl.graph import Step
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.errors import InvalidArgumentError, TopologyError

WhenFull = Literal["emit_early", "fail"]


@dataclass(frozen=True, slots=True)
class Suppress:
    """How long `Table.suppress` holds updates back; make it with one of the class methods.

    The updates wait in a store, one for each key. Their size in bytes is that of keys, values and
    headers, and some 30 bytes each.
    """

    limit_ms: int | None
    """How long each key waits; `None` means until its window has closed."""
    max_records: int | None
    max_bytes: int | None
    when_full: WhenFull

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Self:
        """Forward the result of each window once, when the window has closed.

        That is when stream time reaches its end and the grace period of the windows upstream, of
        sessions also the gap. Windows without a result forward nothing. More than `max_records` or
        `max_bytes` are an error.
        """
        where = "Suppress.until_window_closes"
        return cls(None, *_limits(where, max_records, max_bytes), "fail")

    @classmethod
    def until_time_limit(
        cls,
        limit_ms: Milliseconds,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: WhenFull = "emit_early",
    ) -> Self:
        """Forward the last update of each key `limit_ms` of stream time after the first one.

        With more than `max_records` or `max_bytes`, the keys that have waited longest go out early
        ("emit_early"), or the record is an error ("fail").
        """
        where = "Suppress.until_time_limit"
        if when_full not in get_args(WhenFull):
            raise InvalidArgumentError(
                f'{where} has when_full={when_full!r}: give "emit_early" or "fail"'
            )
        limits = _limits(where, max_records, max_bytes)
        return cls(whole_ms(where, "limit_ms", limit_ms, 0), *limits, when_full)


def _limits(
    where: str, max_records: int | None, max_bytes: int | None
) -> tuple[int | None, int | None]:
    for argument, value in (("max_records", max_records), ("max_bytes", max_bytes)):
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidArgumentError(
                f"{where} has {argument}={value!r}: give a whole number, 1 or more, or leave it "
                "out for no limit"
            )
    return max_records, max_bytes


def close_delay_ms(step: Step, where: str) -> int:
    """Return how long after its end a window closes, for the windows that lead to a step.

    Of several, the longest counts. Raises `TopologyError` if a way to the step has no windows.
    """
    own = step.operation.close_delay_ms
    if own is not None:
        return own
    if not step.parents:
        raise TopologyError(
            f"{where} has Suppress.until_window_closes, but {step!r} leads to it without windows: "
            "suppress a table that windowed_by made, or use Suppress.until_time_limit"
        )
    return max(close_delay_ms(parent, where) for parent in step.parents)


def window_ms(step: Step) -> int:
    """Return how much older than the end of its window a result is that leads to a step."""
    if step.operation.close_delay_ms is not None:
        return step.operation.window_ms
    return max(map(window_ms, step.parents), default=0)
