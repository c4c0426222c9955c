"""The use cases of Theodolite: their pipelines, and the small run that checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.theodolite import model
from benchmarks.theodolite.jobs import (
    CONFIGURATION,
    DAY_MS,
    FEEDBACK,
    FIVE_SECONDS_MS,
    MINUTE_MS,
)
from benchmarks.theodolite.model import Rows
from benchmarks.theodolite.sensors import Reading, readings

MODULES = ("benchmarks.theodolite.jobs",)
"""The modules of the topologies, for config.yaml."""
_START_MS = 20_470 * DAY_MS
"""2026-01-17, 0:00 UTC, at the start of a window of each use case."""
_HOUR_MS = 3_600_000
_STATISTICS_IN_SQL = """
- id: Job
  type: sql
  format: json
  schema: valueInW DOUBLE
  query: >
    SELECT key, key AS sensor, {hour} unix_millis(window.start) AS start, count(*) AS count,
      sum(valueInW) AS sum, min(valueInW) AS min, max(valueInW) AS max, avg(valueInW) AS mean,
      var_pop(valueInW) AS variance
    FROM input GROUP BY key, {groups}
  grace: 0 s
  to: [sink]
"""
_MINUTES_IN_SQL = _STATISTICS_IN_SQL.format(hour="", groups="window(timestamp, '1 minute')")
_HOURS_IN_SQL = _STATISTICS_IN_SQL.format(
    hour="hour(from_utc_timestamp(timestamp, 'Europe/Paris')) AS hour,",
    groups="hour(from_utc_timestamp(timestamp, 'Europe/Paris')), "
    "window(timestamp, '30 days', '1 day')",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCase:
    """A use case."""

    name: str
    title: str
    times: range
    """The times, in ms, at which each sensor measures in the run that checks the results."""
    expected: Callable[[Sequence[Reading]], Rows]
    read: Callable[[Iterable[bytes]], Rows]
    """Reads the values of the sink, those of a partition in their order."""
    closing: range = range(0)
    """The times of further measurements, once nothing more comes, which make the last results come.
    They have no results themselves."""
    topics: tuple[str, ...] = ()
    """Further topics, which a job needs."""
    sql: str = ""
    """The pipeline.yaml of this engine in SQL, where SQL can say it."""

    @property
    def pipeline(self) -> str:
        """The pipeline.yaml of this engine in the DSL."""
        return (
            f"- {{id: Job, type: topology, builder: '{MODULES[0]}:{self.name}', "
            "config: {source: source, sink: sink}}\n"
        )

    def readings(self, sensors: int) -> list[Reading]:
        """Return the input of the run that checks the results."""
        return list(readings(sensors, self.times))

    def closing_readings(self, sensors: int) -> list[Reading]:
        """Return the readings that make the last results come."""
        return list(readings(sensors, self.closing))

    def require_right(self, given: Sequence[Reading], values: Iterable[bytes]) -> None:
        """Raise `WrongOutputError` if the values of the sink are not those of the model."""
        model.require_equal(self.expected(given), self.read(values))


USE_CASES: Mapping[str, UseCase] = {
    each.name: each
    for each in (
        UseCase(
            name="uc1",
            title="storage",
            times=range(_START_MS, _START_MS + 20_000, 1_000),
            expected=model.lines,
            read=model.read_lines,
        ),
        UseCase(
            name="uc2",
            title="downsampling",
            times=range(_START_MS, _START_MS + 5 * MINUTE_MS, 10_000),
            expected=model.minutes,
            read=partial(model.last_of_each, ("sensor", "start"), model.STATISTICS),
            sql=_MINUTES_IN_SQL,
        ),
        UseCase(
            name="uc3",
            title="time attribute",
            # Within a day of UTC: Kafka Streams would drop what is late behind the repartition.
            times=range(_START_MS, _START_MS + 20 * _HOUR_MS, _HOUR_MS // 2),
            expected=model.hours_of_day,
            read=partial(model.last_of_each, ("sensor", "hour", "start"), model.STATISTICS),
            sql=_HOURS_IN_SQL,
        ),
        UseCase(
            name="uc4",
            title="hierarchical aggregation",
            # Within a window: a sum that comes back after its window has closed is late.
            times=range(_START_MS, _START_MS + FIVE_SECONDS_MS, 1_000),
            closing=range(_START_MS + 2 * FIVE_SECONDS_MS, _START_MS + 4 * FIVE_SECONDS_MS, 5_000),
            expected=model.sums,
            read=model.read_first_sums,
            topics=(CONFIGURATION, FEEDBACK),
        ),
    )
}
