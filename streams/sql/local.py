"""A Spark session in this process, for tests without Kafka and for `pipeline validate`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.streams.spark.environment import DEFAULTS, LOCAL, SHORT_LIVED, set_environment
from kafka_pipeline.streams.spark.session import start_session
from kafka_pipeline.streams.spark.zone import adopted
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.json_fields import JsonFields
from kafka_pipeline.streams.sql.queries import SparkQueries
from kafka_pipeline.streams.sql.running_aggregation import RunningAggregation
from kafka_pipeline.streams.sql.running_join import RunningJoin
from kafka_pipeline.streams.sql.running_over import RunningOver
from kafka_pipeline.streams.sql.spec import QuerySpec, SparkQuery
from kafka_pipeline.streams.sql.state_shape import PreparedAggregation, StateShape

_OF_CLUSTERS = re.compile(
    r"spark\.(?:master$|submit\.|deploy\.|standalone\.|yarn\.|kubernetes\.|cores\.|task\.|executor\."
    r"|driver\.(?:host|bindAddress|port|cores|resource)|dynamicAllocation\.|shuffle\.service\."
    r"|authenticate|network\.crypto\.|io\.encryption\.|ssl\.|acls\.|ui\.|eventLog\.|history\.)"
)


class _SharedAggregation:
    """A `PreparedAggregation` that several tasks of a `LocalQueries` use, one at a time."""

    def __init__(self, query: RunningAggregation, last_closed: Callable[[], None]) -> None:
        """Take an unused query, and a callback for when its last user has closed it."""
        self.users = 0
        self._last_closed = last_closed
        self._query = query
        self.partial, self.merge, self.replace = query.partial, query.merge, query.replace

    @property
    def columns(self) -> tuple[str, ...]:
        return self._query.columns

    @property
    def fields(self) -> JsonFields | None:
        return self._query.fields

    @property
    def shape(self) -> StateShape:
        return self._query.shape

    def close(self) -> None:
        """Close the query with its last user."""
        self.users -= 1
        if not self.users:
            self._last_closed()


class IdleAggregations:
    """Planned aggregations of this process without a user, for the next test driver.

    Planning takes most of a driver's start. An aggregation stays only if its plan depends on its
    text alone: no user code, no rows of tables.
    """

    def __init__(self, most: int = 16) -> None:
        """Keep up to `most`; the least recently used are closed first."""
        self._most = most
        self._queries: dict[tuple[str, str], RunningAggregation] = {}

    def take(self, context: str, name: str) -> RunningAggregation | None:
        """Return the aggregation with this name on the Spark with this id, which then is in use."""
        return self._queries.pop((context, name), None)

    def put(self, context: str, name: str, spec: QuerySpec, query: RunningAggregation) -> None:
        """Keep an aggregation that nothing uses any more, or close it."""
        if spec.function or spec.all_tables or spec.global_tables:
            query.close()
            return
        replaced = self._queries.pop((context, name), None)
        self._queries[context, name] = query
        longest = next(iter(self._queries)) if len(self._queries) > self._most else None
        for each in (replaced, self._queries.pop(longest) if longest else None):
            if each is not None:
                each.close()


_IDLE = IdleAggregations()


class LocalQueries:
    """Queries on a session `local[1]`, which the first query starts, in some seconds.

    The session ends with the process, which has the session's time zone from then on. One that
    already runs in this process is used, with its own settings but for the time zone.
    """

    def __init__(self, code: UserCode, readable: Readable, conf: Mapping[str, str] = {}) -> None:
        """Take the code that queries may call, what they may read, and `spark.conf`."""
        self._code = code
        self._conf = conf
        self._readable = readable
        self._aggregations: dict[str, _SharedAggregation] = {}

    def open(self, spec: QuerySpec) -> SparkQuery:
        """See `Queries.open`.

        Also raises `UnavailableError` without Java 17, and `ConfigError` if others in this process
        have Spark in another time zone.
        """
        return self._queries().open(spec)

    def open_aggregation(self, spec: QuerySpec) -> PreparedAggregation:
        """See `SparkQueries.open_aggregation`. Raises as `open` does.

        Tasks ahead of the topic of groups, and those behind it, share one.
        """
        # The processor's name is only for errors, and a query with one is not kept.
        name = replace(spec, processor="").to_json()
        shared = self._aggregations.get(name)
        if shared is None:
            shared = self._aggregations[name] = self._shared(name, spec)
        shared.users += 1
        return shared

    def _shared(self, name: str, spec: QuerySpec) -> _SharedAggregation:
        queries = self._queries()
        query = _IDLE.take(queries.spark_id, name) or queries.open_aggregation(spec)

        def last_closed() -> None:
            del self._aggregations[name]
            _IDLE.put(queries.spark_id, name, spec, query)

        return _SharedAggregation(query, last_closed)

    def open_join(self, spec: QuerySpec) -> RunningJoin:
        """See `SparkQueries.open_join`. Raises as `open` does."""
        return self._queries().open_join(spec)

    def open_over(self, spec: QuerySpec) -> RunningOver:
        """See `SparkQueries.open_over`. Raises as `open` does."""
        return self._queries().open_over(spec)

    def result(self, spec: QuerySpec) -> str:
        """See `SparkQueries.result`. Raises as `open` does."""
        return self._queries().result(spec)

    def _queries(self) -> SparkQueries:
        running = SparkContext._active_spark_context
        if running is None:
            set_environment([])
            session = start_session(local_settings(self._conf))
        else:
            session = adopted(SparkSession(running), self._conf)
        # Spark starts a Python worker for each environment that functions are made in, so another
        # pipeline's session does as well as one of our own.
        folders = map(str, self._code.python_path)
        session.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(folders)
        return SparkQueries(session, self._code, self._readable)


def local_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a local session: those for queries, not those for where Spark runs."""
    return {
        **DEFAULTS,
        **SHORT_LIVED,
        **LOCAL,
        **{name: value for name, value in conf.items() if not _OF_CLUSTERS.match(name)},
        "spark.master": "local[1]",
        "spark.app.name": "local queries",
    }
