"""What a topic accepts: the settings by which a broker refuses single records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ANY_TIME_MS = 2**63 - 1
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_BOTH = "message.timestamp.difference.max.ms"


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """How large records may be, which times they may have (KIP-937), and whether keys are needed.

    A timestamp may be `before_ms` older than the broker's clock at most, and `after_ms` newer,
    which is one hour by default since Kafka 4.0 (KIP-1030).
    """

    size_bytes: int
    """The largest batch of records."""
    before_ms: int = ANY_TIME_MS
    after_ms: int = ANY_TIME_MS
    needs_key: bool = False
    """Whether the topic is compacted: it refuses records without a key."""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TopicLimits:
        """Read all settings of a topic, by Kafka's names. Brokers before 3.6 have one for times."""
        has_append_times = settings["message.timestamp.type"] == "LogAppendTime"
        both = settings.get(_BOTH, ANY_TIME_MS)
        return cls(
            int(settings["max.message.bytes"]),
            ANY_TIME_MS if has_append_times else int(settings.get(_BEFORE, both)),
            ANY_TIME_MS if has_append_times else int(settings.get(_AFTER, both)),
            "compact" in settings["cleanup.policy"],
        )

    def time_problem(self, timestamp: int, now_ms: int) -> str:
        """Return how a timestamp is out of bounds now, or "" if it is not."""
        if timestamp - now_ms > self.after_ms:
            return f"more than {self.after_ms} ms ahead of the clock ({_AFTER})"
        if now_ms - timestamp > self.before_ms:
            return f"more than {self.before_ms} ms behind the clock ({_BEFORE})"
        return ""
