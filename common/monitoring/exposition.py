"""Renders samples in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kafka_pipeline.common.monitoring.metric import MetricKind, Sample
from kafka_pipeline.common.monitoring.times import Times

PROCESS_METRICS = (
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
)
"""The metrics of a process that `ProcessCollector` has on Linux."""

Samples = Callable[[], Iterable[Sample]]
"""Returns the current samples of a daemon."""


class Exposition:
    """The page with all metrics of a daemon and its process (`process_…`)."""

    def __init__(self, samples: Samples) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Samples(samples))
        ProcessCollector(registry=self._registry)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its content type; `accept` is the request's HTTP header."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Samples(Collector):
    """Asks for the samples each time the page is read, so that nothing outdated is kept."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[Sample]] = {}
        for sample in self._samples():
            by_name.setdefault(sample.metric.name, []).append(sample)
        yield from map(_family, by_name.values())


def _family(samples: Sequence[Sample]) -> Metric:
    metric = samples[0].metric
    match metric.kind:
        case MetricKind.COUNTER:
            return _with(CounterMetricFamily(metric.full_name, metric.doc), samples)
        case MetricKind.GAUGE:
            return _with(GaugeMetricFamily(metric.full_name, metric.doc), samples)
        case MetricKind.HISTOGRAM:
            histogram = HistogramMetricFamily(metric.full_name, metric.doc, labels=metric.labels)
            for sample in samples:
                times = sample.value
                assert isinstance(times, Times)
                buckets = [(_bound(bound), float(count)) for bound, count in times.up_to()]
                histogram.add_metric(sample.labels, buckets, times.sum_us / 1_000_000)
            return histogram


def _with(family: Metric, samples: Sequence[Sample]) -> Metric:
    """Add samples, which may each have other labels if they are those of user code."""
    for sample in samples:
        labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
        family.add_sample(sample.metric.full_name, labels, _number(sample))
    return family


def _number(sample: Sample) -> float:
    assert not isinstance(sample.value, Times)
    return float(sample.value)


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else str(seconds)
