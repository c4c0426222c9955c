"""A Spark session in this process, for tests without Kafka and for `pipeline validate`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from common.user_code import UserCode
from streams.sql.access import Readable
from streams.sql.aggregation import RunningAggregation
from streams.sql.environment import LOCAL, QUIET, set_environment
from streams.sql.queries import SparkQueries
from streams.sql.running_join import RunningJoin
from streams.sql.session import start_session
from streams.sql.spec import QuerySpec, SparkQuery
from streams.sql.zone import adopted

_OF_CLUSTERS = re.compile(
    r"spark\.(?:master$|submit\.|deploy\.|standalone\.|yarn\.|kubernetes\.|cores\.|task\.|executor\."
    r"|driver\.(?:host|bindAddress|port|cores|resource)|dynamicAllocation\.|shuffle\.service\."
    r"|authenticate|network\.crypto\.|io\.encryption\.|ssl\.|acls\.|ui\.|eventLog\.|history\.)"
)


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

    def open(self, spec: QuerySpec) -> SparkQuery:
        """See `Queries.open`.

        Also raises `UnavailableError` without Java 17, and `ConfigError` if others in this process
        have Spark in another time zone.
        """
        return self._queries().open(spec)

    def open_aggregation(self, spec: QuerySpec) -> RunningAggregation:
        """See `SparkQueries.open_aggregation`. Raises as `open` does."""
        return self._queries().open_aggregation(spec)

    def open_join(self, spec: QuerySpec) -> RunningJoin:
        """See `SparkQueries.open_join`. Raises as `open` does."""
        return self._queries().open_join(spec)

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
        **QUIET,
        **LOCAL,
        **{name: value for name, value in conf.items() if not _OF_CLUSTERS.match(name)},
        "spark.master": "local[1]",
        "spark.app.name": "local queries",
    }
