"""Decodes control records for a daemon; counts and logs those that it rejects."""

from __future__ import annotations

from collections import Counter
from typing import Any

from common.codec import Codec
from common.messages import ControlRecord, MalformedMessageError, Message
from common.signing import SIGNATURE

_MOST_REASONS = 100
_MOST_CHARACTERS = 500


class RejectedRecords:
    """Counts rejected control records.

    Each reason is logged for its 1st, 2nd, 4th, 8th … record, and a hundred reasons at most:
    whoever fills a control topic must not fill the log.
    """

    def __init__(self, log: Any) -> None:
        """`log` is a logger of structlog."""
        self._log = log
        self._by_reason = Counter[str]()
        self.total = 0

    def add(self, error: MalformedMessageError) -> None:
        """Count a record that is not acted on."""
        self.total += 1
        reason = str(error)[:_MOST_CHARACTERS]
        if reason not in self._by_reason and len(self._by_reason) >= _MOST_REASONS:
            return
        self._by_reason[reason] += 1
        count = self._by_reason[reason]
        if count & (count - 1) == 0:
            self._log.warning(
                "control message rejected", reason=reason, count=count, total=self.total
            )


class ControlInbox:
    """Decodes the control records that a daemon reads."""

    def __init__(self, codec: Codec, log: Any) -> None:
        """`codec` is for this reader alone; `log` is a logger of structlog."""
        self._codec = codec
        self._log = log
        self._rejected = RejectedRecords(log)
        self._has_seen_signature = codec.is_signed

    @property
    def rejected(self) -> int:
        """How many records were rejected."""
        return self._rejected.total

    def take(self, record: ControlRecord) -> Message | None:
        """Return the message of a record; None if it is incomplete or rejected."""
        if not self._has_seen_signature and SIGNATURE in dict(record.headers):
            self._has_seen_signature = True
            self._log.warning(
                "control messages are signed, and this daemon has no key: the others reject what "
                "it sends. Set control_key_file in its config.yaml to a file with their key",
                topic=record.topic,
            )
        try:
            return self._codec.decode(record)
        except MalformedMessageError as error:
            self._rejected.add(error)
            return None
