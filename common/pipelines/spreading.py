"""A store's rule for spreading its state over another number of tasks."""

from __future__ import annotations

from typing import Literal

from kafka_pipeline.common.typed_json import Strict

Rule = Literal[
    "said",
    "key",
    "columns",
    "copy",
    "times",
    "join_times",
    "numbered_times",
    "numbered",
    "unmatched",
    "subscriptions",
]
EntryTime = Literal["window", "session", "version"]


class Spreading(Strict, frozen=True, kw_only=True):
    """Which record key an entry of a store belongs to: that key decides its task.

    | rule | entries |
    | --- | --- |
    | `said` | as `key`, if somebody says that the store of user code has the keys of records |
    | `key` | the key in the store has the record's key in it |
    | `columns` | the key in the store is a row of columns; the store `shape` says which one |
    | `copy` | all tasks have the same ones |
    | `times` | the times of windows of the task |
    | `join_times` | the times of a join of the task |
    | `numbered_times` | the time and the next number of a query that joins |
    | `numbered` | as `key`; values begin with a number that is unique in the task |
    | `unmatched` | under numbers of rows, which are in the stores `left` and `right` |
    | `subscriptions` | as `key`; values have the task of the row, which reads `answers` |

    A key in the store is a prefix of `before` bytes, the record's key, a suffix of `after` bytes,
    and the entry's `time`. With `has_length`, a 4-byte length of the record's key and its suffix
    precedes them, and any bytes may follow. `after_row_key` is the length of the suffix of the row
    key in a subscription.

    A window that is emitted when it closes does so `closes_ms` after its time, and is kept for
    `kept_ms`; otherwise both are None. With a `calendar`, the period and the zone of `Calendar`, it
    is emitted that long after its end.
    """

    rule: Rule = "said"
    time: EntryTime | None = None
    before: int = 0
    after: int = 0
    has_length: bool = False
    answers: str | None = None
    after_row_key: int = 0
    closes_ms: int | None = None
    calendar: tuple[str, str] | None = None
    kept_ms: int | None = None


SAID = Spreading()
"""How a key-value store of user code is spread."""
