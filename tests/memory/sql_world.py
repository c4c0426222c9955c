"""All tasks of a pipeline of queries on brokers in memory; see `EventTimeWorld`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from tests.memory.event_time_model import Expected, Input, Result
from tests.memory.event_time_plans import Drawn, Records
from tests.memory.event_time_world import EventTimeWorld
from tests.memory.fake_queries import FakeQueries
from tests.memory.faults import Weather
from tests.memory.sql_model import expected_of_queries
from tests.memory.sql_plans import SqlPlan, draw_sql
from tests.unit.streams.sql.grouped_job import OpenedOnce
from tests.user_code.timed_windows import OUT


class SharedQueries(OpenedOnce):
    """Queries in the place of a channel to the driver; each text is planned once."""

    def while_waiting(self, _: Callable[[], None]) -> SharedQueries:
        """Return the queries: planning one takes no time here."""
        return self


class SqlWorld(EventTimeWorld):
    """A run of a pipeline of queries, from a seed."""

    def __init__(
        self,
        seed: int,
        queries: SharedQueries | None = None,
        *,
        weather: Weather | None = None,
        state_dir: Path | None = None,
    ) -> None:
        self._queries = queries
        super().__init__(seed, weather=weather, state_dir=state_dir)

    def draw(self, *, becomes_idle: bool, looks_up: bool) -> Drawn[Any]:
        return draw_sql(self.random, becomes_idle=becomes_idle)

    def load(self, inputs: Records) -> Pipeline:
        plan: SqlPlan = self.drawn.plan
        self.queries = self._queries or FakeQueries(plan)
        return plan.pipeline(inputs, self.config)

    def closing_stays(self) -> bool:
        return True

    def value_of(self, record: Input) -> bytes:
        return json.dumps({"k": record.key, "ids": [record.value.decode()]}).encode()

    @property
    def results(self) -> Counter[Result]:
        """The committed records of the output topic; of results that change, the last ones."""
        last: dict[bytes, Result | None] = {}
        found: Counter[Result] = Counter()
        for log in self.broker.topics[OUT].partitions:
            for entry in log.committed():
                result = _result(entry)
                if self.drawn.plan.changes:
                    assert entry.key is not None
                    last[entry.key] = result and result._replace(time_ms=0)
                else:
                    assert result is not None
                    found[result] += 1
        return found + Counter(filter(None, last.values()))

    def expected(self) -> Expected:
        drawn = self.drawn
        return expected_of_queries(drawn.plan, self.written, drawn.end_ms, may_miss=drawn.may_miss)

    def check_missing(self, missing: int, after_idle: int) -> None:
        """Compare what is missing with what was counted: rows, each of which may have many ids."""
        assert bool(missing) == bool(after_idle), f"{after_idle} are late, but {missing} missing"
        assert after_idle <= missing, f"{after_idle} are late, but only {missing} missing"


def _result(entry: Any) -> Result | None:
    if entry.value is None:
        return None
    value = json.loads(entry.value)
    ids = tuple(sorted(each.encode() for each in value["ids"]))
    return Result(b"%d" % value["k"], ids, entry.timestamp)
