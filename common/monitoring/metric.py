"""Metrics and their samples, as values; `exposition.py` renders them for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kafka_pipeline.common.monitoring.times import Times

PREFIX = "kafka_pipeline_"
"""The prefix of the names of all metrics."""


class MetricKind(StrEnum):
    """The kinds of metrics, as Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: `name` without the prefix, one line of documentation, the names of its labels.

    The name of a counter ends in `_total`, and that of a metric with a unit in the unit, in
    Prometheus' base units (seconds, bytes).
    """

    kind: MetricKind
    name: str
    doc: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name as Prometheus has it."""
        return f"{PREFIX}{self.name}"

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series, for queries."""
        name = self.full_name
        if self.kind is MetricKind.HISTOGRAM:
            return f"{name}_bucket", f"{name}_sum", f"{name}_count"
        return (name,)

    def sample(self, value: float | Times, *labels: object) -> Sample:
        """Return a value of the metric; `labels` are in the order of the names."""
        assert len(labels) == len(self.labels), f"{self.name} has the labels {self.labels}"
        return Sample(self, value, tuple(map(str, labels)))

    def one_of(self, values: Iterable[str], current: str, *labels: object) -> list[Sample]:
        """Return a sample for each of the `values` of the last label: 1 for the current one."""
        return [self.sample(value == current, *labels, value) for value in values]


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric, a `Times` for a histogram, with the values of its labels."""

    metric: Metric
    value: float | Times
    labels: tuple[str, ...]


def counter(name: str, doc: str, *labels: str) -> Metric:
    """Return a metric that only grows, except that it restarts from 0 with its process."""
    return Metric(MetricKind.COUNTER, name, doc, labels)


def gauge(name: str, doc: str, *labels: str) -> Metric:
    """Return a metric that goes up and down."""
    return Metric(MetricKind.GAUGE, name, doc, labels)


def histogram(name: str, doc: str, *labels: str) -> Metric:
    """Return a metric of durations in seconds, counted by length."""
    return Metric(MetricKind.HISTOGRAM, name, doc, labels)
