"""Runs of a use case: one that checks the results, and some that say which rates are sustained."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.bench import STALL_S, Bench, JobRun
from benchmarks.contender import Contender
from benchmarks.records import WrongOutputError
from benchmarks.resources import PeakMemory, cpu_s
from benchmarks.steady_writer import steady_writer
from benchmarks.theodolite.catalog import UseCase
from benchmarks.theodolite.jobs import CONFIGURATION
from benchmarks.theodolite.lag import Lag, trend
from benchmarks.theodolite.sensors import Load, registry
from kafka_pipeline.common.kafka.bulk import read_committed

_POLL_S = 0.5
_QUIET_S = 5.0
"""If nothing was written for this long, all results are there."""
_START_S = 300.0
"""How long a job may take until it has processed something."""
_FIRST_RECORDS = 100
"""Records that come first, enough for all partitions; once they are processed, the job runs."""
_CHECKED_SENSORS = 50
_LINGER_MS = 5
_LEAST_SHARE = 0.97
"""The share of the rate that the generator must reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long a rate is tried, and when it counts as sustained."""

    warm_up_s: float
    duration_s: float
    most_trend: float
    """The largest trend of the lag, as a share of the rate."""
    threads: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a rate."""

    rate: int
    written_per_s: float
    """What the generator wrote."""
    lag_per_s: float
    """The trend of the lag, in records/s."""
    figures: dict[str, float]

    def problem(self, most_trend: float) -> str:
        """Return why the rate is not sustained; "" if it is."""
        if self.written_per_s < _LEAST_SHARE * self.rate:
            return f"the generator wrote only {self.written_per_s:,.0f} records/s"
        if self.lag_per_s > most_trend * self.rate:
            return f"the lag grew by {self.lag_per_s:,.0f} records/s"
        return ""


def check(bench: Bench, contender: Contender, use_case: UseCase, threads: int) -> None:
    """Run a use case over a few readings.

    Raises `WrongOutputError` if the results are not those of the model.
    """
    readings = use_case.readings(_CHECKED_SENSORS)
    closing = use_case.closing_readings(_CHECKED_SENSORS)
    with bench.run(contender, use_case.name, threads=threads) as run:
        _prepare(bench, use_case, _CHECKED_SENSORS, readings[0].timestamp)
        bench.write_at(run.job.source, (each.row for each in readings))
        run.start()
        _wait_until_processed(bench, run, len(readings))
        _wait_until_quiet(bench, run, use_case)
        if closing:
            bench.write_at(run.job.source, (each.row for each in closing))
            _wait_until_processed(bench, run, len(readings) + len(closing))
            _wait_until_quiet(bench, run, use_case)
        run.stop()
        found = read_committed(bench.config, run.job.sink, bench.partitions)
        values = (value for batch in found for value in batch.values if value is not None)
        use_case.require_right(readings, values)


def try_rate(
    bench: Bench, contender: Contender, use_case: UseCase, rate: int, settings: Settings
) -> Trial:
    """Run a use case at a rate; return what became of it."""
    load = Load(sensors=rate)
    with bench.run(contender, use_case.name, threads=settings.threads) as run:
        lag = Lag(bench)
        _prepare(bench, use_case, rate, time.time_ns() // 1_000_000)
        bench.write(run.job.source, map(load.record, range(_FIRST_RECORDS)))
        sessions = run.start().sessions
        _wait_until_processed(bench, run, _FIRST_RECORDS)
        with (
            PeakMemory(sessions) as memory,
            steady_writer(
                run.job.servers, run.job.source, 0, rate, load.record, linger_ms=_LINGER_MS
            ) as writer,
        ):
            _follow(run, lambda: writer.written, lambda found, _: found > 0)
            _wait_until(run, time.monotonic() + settings.warm_up_s)
            began_s, first = time.monotonic(), writer.written
            began_cpu_s, began_broker_s = cpu_s(sessions), bench.broker_cpu_s()
            times_s, lags = [0.0], [lag.now()]
            while times_s[-1] < settings.duration_s:
                _wait_until(run, time.monotonic() + _POLL_S)
                times_s.append(time.monotonic() - began_s)
                lags.append(lag.now())
            took_s, written = time.monotonic() - began_s, writer.written - first
            used_s = cpu_s(sessions) - began_cpu_s
            broker_s = bench.broker_cpu_s() - began_broker_s
            writer.stop()
    figures = {
        "records_per_s": float(rate),
        "records_per_s_per_core": written / used_s if used_s else 0.0,
        "cpu_s_per_million": used_s / written * 1e6 if written else 0.0,
        "broker_cpu_s_per_million": broker_s / written * 1e6 if written else 0.0,
        "peak_mb": memory.mb,
    }
    return Trial(rate, written / took_s, trend(times_s, lags), figures)


def _prepare(bench: Bench, use_case: UseCase, sensors: int, timestamp: int) -> None:
    """Make the further topics of a use case, and write the registry with a timestamp in ms."""
    for topic in use_case.topics:
        bench.make_topic(topic)
    if CONFIGURATION in use_case.topics:
        bench.write_at(CONFIGURATION, registry(sensors, timestamp))


def _wait_until(run: JobRun, end_s: float) -> None:
    """Wait until a time of `time.monotonic`; raises `PipelineError` if a process ends."""
    while (left_s := end_s - time.monotonic()) > 0:
        run.require_alive()
        time.sleep(min(left_s, _POLL_S))


def _wait_until_processed(bench: Bench, run: JobRun, records: int) -> None:
    """Wait until the positions in the source are that far."""
    committed = bench.committed(run.running.group, run.job.source)
    _follow(run, committed, lambda found, _: found >= records)


def _wait_until_quiet(bench: Bench, run: JobRun, use_case: UseCase) -> None:
    """Wait until the job has written something, and has written no more for a while."""
    topics = (run.job.sink, *use_case.topics)
    _follow(
        run,
        lambda: sum(map(bench.written, topics)),
        lambda found, quiet_s: found > 0 and quiet_s > _QUIET_S,
    )


def _follow(run: JobRun, look: Callable[[], int], is_done: Callable[[int, float], bool]) -> None:
    """Wait until `is_done` returns true for a figure and the seconds since it last changed.

    Raises `WrongOutputError` if it stands still for too long before.
    """
    known, changed_s = look(), time.monotonic()
    while not is_done(known, time.monotonic() - changed_s):
        time.sleep(_POLL_S)
        run.require_alive()
        found = look()
        if found != known:
            known, changed_s = found, time.monotonic()
        elif time.monotonic() - changed_s > (STALL_S if known else _START_S):
            raise WrongOutputError(f"nothing changed for long: {known:,} offsets are there")
