"""The runs of a comparison: its workloads, and the contenders that take part in each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

OURS = "this engine"
KAFKA_STREAMS = "kafka-streams"
QUIX = "quix"
AT_LEAST_ONCE = "at-least-once"
TRANSACTIONAL = "transactional"
PEERS = (KAFKA_STREAMS, QUIX)
LATENCY_RATES = (1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Entry:
    """A run in each round: a contender and its job. Workloads that share it share its figures."""

    contender: str
    measurement: str
    kind: str
    rate: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """The entries that one table compares; the first one is this engine's."""

    title: str
    entries: Sequence[Entry]

    @property
    def measurement(self) -> str:
        return self.entries[0].measurement


DSL = ("filter-map", "windowed-count", "stream-table", "stream-stream", "foreign-key")
"""The workloads in the DSL, in which Quix takes no part."""
MORE_DSL = ("hopping", "sliding", "session", "suppressed", "cogroup", "table-table", "table-sum")
"""Further ones, which run only if they are asked for."""
_JOBS: dict[str, dict[str, Sequence[str]]] = {
    "forward": {OURS: ["forward"], KAFKA_STREAMS: ["forward"], QUIX: ["forward"]},
    "count": {OURS: ["count"], KAFKA_STREAMS: ["count", "cached-count"], QUIX: ["count"]},
    "processor": {OURS: ["processor"], KAFKA_STREAMS: ["processor"], QUIX: ["count"]},
    "batch": {OURS: ["batch"], KAFKA_STREAMS: ["processor"], QUIX: ["count"]},
    "filter-map": {OURS: ["filter-map-columns", "filter-map"], KAFKA_STREAMS: ["filter-map"]},
    "windowed-count": {OURS: ["windowed-count"], KAFKA_STREAMS: ["windowed-count"]},
    "stream-table": {OURS: ["stream-table"], KAFKA_STREAMS: ["stream-table"]},
    "stream-stream": {OURS: ["stream-stream"], KAFKA_STREAMS: ["stream-stream"]},
    "foreign-key": {OURS: ["foreign-key"], KAFKA_STREAMS: ["foreign-key"]},
    **{job: {OURS: [job], KAFKA_STREAMS: [job]} for job in MORE_DSL},
    "sum": {OURS: ["sum"]},
    "chain": {OURS: ["chain"]},
    "sql": {OURS: ["sql"]},
    "sql-windowed-count": {OURS: ["sql-windowed-count"]},
    "sql-stream-table": {OURS: ["sql-stream-table"]},
}
"""The jobs of each throughput workload."""
_OTHERS: dict[str, dict[str, str]] = {
    "latency": {OURS: "forward", KAFKA_STREAMS: "forward", QUIX: "forward"},
    "sql-latency": {OURS: "sql-all"},
    "sql-windowed-latency": {OURS: "sql-windowed-last"},
    "restore": {OURS: "count", KAFKA_STREAMS: "count", QUIX: "count"},
    "failover": {OURS: "count", KAFKA_STREAMS: "count", QUIX: "count"},
}

WORKLOADS = (*_JOBS, *_OTHERS)
DSL_JOBS = ("filter-map-columns", *DSL, *MORE_DSL)
COMPARED = ("forward", "count", "processor", "batch", *DSL, "latency", "restore", "failover")
"""The workloads in which peers take part."""


def groups(workloads: Collection[str], peers: Collection[str]) -> Iterator[Group]:
    """Yield the tables of some workloads, each with this engine, these peers and its baselines."""
    who = (OURS, *peers)
    for workload in workloads:
        if workload in _JOBS:
            entries = [
                Entry(contender, "throughput", kind)
                for contender in who
                for kind in _JOBS[workload].get(contender, ())
            ]
            limits = [
                Entry(mode, "throughput", "forward") for mode in (TRANSACTIONAL, AT_LEAST_ONCE)
            ]
            yield Group(workload, [*entries, *limits])
        elif workload.endswith("latency"):
            # At a higher rate, a batch may have several records of a key, which give one result.
            rates = LATENCY_RATES[:1] if workload == "sql-windowed-latency" else LATENCY_RATES
            for rate in rates:
                yield Group(f"{workload} at {rate:,} records/s", _others(workload, who, rate))
        else:
            yield Group(workload, _others(workload, who))


def _others(workload: str, who: Collection[str], rate: int = 0) -> list[Entry]:
    measurement = "latency" if rate else workload
    jobs = _OTHERS[workload]
    return [Entry(name, measurement, jobs[name], rate) for name in who if name in jobs]


def distinct(planned: Collection[Group]) -> list[Entry]:
    """Return the runs of a round: each entry once, in the order of their first tables."""
    return list(dict.fromkeys(entry for group in planned for entry in group.entries))


def order_of(entries: Sequence[Entry], round_number: int) -> list[Entry]:
    """Return the runs of a round in order; each round begins with a different one.

    So no entry always follows the same one, or is always first on a machine that was at rest.
    """
    start = round_number % len(entries) if entries else 0
    return [*entries[start:], *entries[:start]]
