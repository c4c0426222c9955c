"""Decodes control records for a daemon; counts and logs those that it rejects."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.monitoring.counted_log import CountedLog
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import ControlRecord, MalformedMessageError, Message
from kafka_pipeline.common.protocol.signing import SIGNATURE

REJECTED = "control message rejected"


class ControlInbox:
    """Decodes the control records that one daemon reads."""

    def __init__(self, codec: Codec, log: Any) -> None:
        """`codec` must not be shared with another reader; `log` is a logger of structlog."""
        self._codec = codec
        self._log = log
        self._rejected = CountedLog(log, REJECTED)
        self._has_seen_signature = codec.is_signed

    @property
    def rejected(self) -> int:
        """The number of rejected records."""
        return self._rejected.total

    def take(self, record: ControlRecord) -> Message | None:
        """Return the message of a record; `None` if it is incomplete, or rejected."""
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
            self._rejected.add(str(error))
            return None
