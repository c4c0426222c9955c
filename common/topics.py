"""The policies of topics, and which records a topic accepts; nothing here talks to a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_pipeline.common.suggest import counted

ANY_SIZE_BYTES = 100_000_000
"""The `max.message.bytes` of all topics of a job except the user's and the control topics.

The user's topics set the limit, not the engine's, and a dead letter is larger than its record.
Brokers accept requests of up to 100 MiB (socket.request.max.bytes). `allowed` lowers it.
"""

_ANY_SIZE = {"max.message.bytes": str(ANY_SIZE_BYTES)}
_ANY_TIME = {
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "9223372036854775807",
}
# Brokers may have a limit for all topics that do not say otherwise (log.retention.bytes).
_ANY_TOTAL = {"retention.bytes": "-1"}
KEEP_ALL: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1"} | _ANY_TOTAL
# Records keep the timestamps of the source, so retention by time would delete old records before
# any task has read them. The JobManager deletes processed records from arcs, as Kafka Streams does;
# dead letters stay until somebody deletes them.
RECORDS: Mapping[str, str] = {**KEEP_ALL, **_ANY_SIZE, **_ANY_TIME}
"""The policy of arcs and of dead letters."""
RECORDS_NEED = frozenset(KEEP_ALL)
"""The settings that an existing arc must have, or records would be gone before they are read."""

TOMBSTONES_KEPT_MS = 7 * 86_400_000
"""The minimum time for which a state topic keeps deletions, for stores that were away."""

# Kafka never compacts the active segment, so smaller segments make restores shorter. Timestamps are
# the brokers': retention must not delete new state because its records have old times.
STATE: Mapping[str, str] = {
    "segment.bytes": "67108864",
    "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
    "message.timestamp.type": "LogAppendTime",
} | _ANY_SIZE
"""The policy of state topics, to which each store adds its own."""
STATE_NEEDS = frozenset({*KEEP_ALL, "delete.retention.ms", "message.timestamp.type"})
"""The settings that an existing state topic must have, or state would be lost."""


def state_policy(of_store: Mapping[str, str]) -> dict[str, str]:
    """Return the policy of a state topic; `of_store` is what its store adds."""
    deletes = "delete" in of_store["cleanup.policy"]
    return {**STATE, **of_store, **(_ANY_TOTAL if deletes else {})}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should exist; `config` overrides the broker's defaults by Kafka's names.

    `needs` names the settings that an existing topic must have. Other settings that somebody has
    changed are left as they are.
    """

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict, hash=False)
    needs: frozenset[str] = frozenset()

    @property
    def made_with(self) -> dict[str, str]:
        """The settings to create it with: of three or more copies, two must confirm each record."""
        safe = {"min.insync.replicas": "2"} if self.replication_factor > 2 else {}
        return {**safe, **self.config}

    def misfits(self, found: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the settings of the existing topic, and what to do."""
        for name in sorted(self.needs & self.config.keys()):
            wanted, has = self.config[name], found[name]
            if not _suffices(name, has, wanted):
                yield (
                    f"topic {self.name}: {name} is {has}, and must be {wanted}, or state or "
                    f"records are lost. Set it: kafka-configs.sh --alter --entity-type topics "
                    f"--entity-name {self.name} --add-config '{name}=[{wanted}]'"
                )


def _suffices(name: str, found: str, wanted: str) -> bool:
    """Whether a setting keeps at least what the wanted value would keep."""
    if name == "cleanup.policy":
        return set(found.replace(" ", "").split(",")) == set(wanted.split(","))
    if name in ("retention.ms", "retention.bytes", "delete.retention.ms"):
        forever = name != "delete.retention.ms" and int(found) < 0
        return forever or (int(wanted) >= 0 and int(found) >= int(wanted))
    return found == wanted


def allowed(settings: Mapping[str, str], most_bytes: int) -> dict[str, str]:
    """Return settings to make a topic with; the engine's own limit becomes `most_bytes`."""
    own = _ANY_SIZE.items() <= settings.items()
    return {**settings, "max.message.bytes": str(most_bytes)} if own else dict(settings)


def misfits(
    specs: Iterable[TopicSpec],
    counts: Mapping[str, int],
    settings: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Return what is wrong with existing topics, and what to do: partitions, then settings.

    `counts` has the partitions of existing topics, and `settings` the settings of those with
    `needs`.
    """
    specs = list(specs)
    found = [
        f"topic {spec.name} has {counted(counts[spec.name], 'partition')}, the pipeline needs "
        f"{spec.partitions}; what to do: docs/how-to/troubleshoot.md, "
        '"A topic has the wrong number of partitions"'
        for spec in specs
        if counts.get(spec.name, spec.partitions) != spec.partitions
    ]
    of_settings = (spec.misfits(settings[spec.name]) for spec in specs if spec.name in settings)
    return found + [line for lines in of_settings for line in lines]


ANY_TIME_MS = 2**63 - 1
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_BOTH = "message.timestamp.difference.max.ms"


class ExistingTopic(NamedTuple):
    """A topic that brokers know."""

    id: str
    """The id that it got when it was created (KIP-516)."""
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The sizes and times that a topic accepts (KIP-937), and whether its records need keys.

    A timestamp may be at most `before_ms` before the broker's clock, and `after_ms` after it. The
    default of the latter is one hour since Kafka 4.0 (KIP-1030).
    """

    size_bytes: int
    """The largest batch of records, in bytes."""
    before_ms: int = ANY_TIME_MS
    after_ms: int = ANY_TIME_MS
    needs_key: bool = False
    """Whether the topic is compacted: it refuses records without a key."""
    kept_ms: int = ANY_TIME_MS
    """At which age records are deleted, by their own timestamps."""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TopicLimits:
        """Read a topic's settings, by Kafka's names. Brokers before 3.6 have one limit of time."""
        has_append_times = settings["message.timestamp.type"] == "LogAppendTime"
        keeps_all = has_append_times or "delete" not in settings["cleanup.policy"]
        kept_ms = -1 if keeps_all else int(settings["retention.ms"])
        both = settings.get(_BOTH, ANY_TIME_MS)
        return cls(
            int(settings["max.message.bytes"]),
            ANY_TIME_MS if has_append_times else int(settings.get(_BEFORE, both)),
            ANY_TIME_MS if has_append_times else int(settings.get(_AFTER, both)),
            "compact" in settings["cleanup.policy"],
            ANY_TIME_MS if kept_ms < 0 else kept_ms,
        )

    def time_problem(self, timestamp: int, now_ms: int) -> str:
        """Return how a timestamp is out of bounds at `now_ms`; "" if it is not."""
        if timestamp - now_ms > self.after_ms:
            return f"more than {self.after_ms} ms ahead of the clock ({_AFTER})"
        if now_ms - timestamp > self.before_ms:
            return f"more than {self.before_ms} ms behind the clock ({_BEFORE})"
        return ""


NO_LIMITS = TopicLimits(2**31 - 1)
"""The limits of a topic that takes all records."""
