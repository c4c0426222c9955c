"""The rule by which a store's entries are assigned to tasks when their number changes."""

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
    | `said` | as `key`, if the user declares that a store of user code has the records' keys |
    | `key` | the entry's key contains the record's key |
    | `columns` | the entry's key is a row of columns; the store `shape` says which one counts |
    | `copy` | the same in all tasks |
    | `times` | the times of windows of the task |
    | `join_times` | the times of a join of the task |
    | `numbered_times` | the time and the next number of a query that joins |
    | `numbered` | as `key`; values begin with a number that is unique in the task |
    | `unmatched` | by numbers of rows, which are in the stores `left` and `right` |
    | `subscriptions` | as `key`; values contain the task of the row, which reads `answers` |

    An entry's key consists of a prefix of `before` bytes, the record's key, a suffix of `after`
    bytes, and the entry's `time`. With `has_length`, a 4-byte length of the record's key and its
    suffix comes first, and any bytes may follow. `after_row_key` is the length of the suffix of the
    row key in a subscription.

    A window that is emitted when it closes is emitted `closes_ms` after its time, and kept for
    `kept_ms`; for others, both are `None`. With a `calendar`, the period and the zone of a
    `Calendar`, it is emitted `closes_ms` after the end of its period. With `marks_given`, values
    are rows of a query with `OVER (…)`: where tasks become one, those that have had their results
    are marked.
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
    marks_given: bool = False


SAID = Spreading()
"""The spreading of user code's key-value stores."""
