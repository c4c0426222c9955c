"""The worker's side of the query channel."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, SparkLostError
from kafka_pipeline.taskmanager.listening import connect
from kafka_pipeline.taskmanager.query_channel import ask, send_at_once
from kafka_pipeline.taskmanager.remote_calls import (
    RemoteAggregation,
    RemoteJoin,
    RemoteOver,
    RemoteQuery,
)


class RemoteQueries:
    """The worker's side of `QueryServer`."""

    def __init__(
        self,
        address: tuple[str, int],
        authkey: bytes,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._authkey = authkey
        self._meanwhile = meanwhile

    def while_waiting(self, meanwhile: Callable[[], None]) -> RemoteQueries:
        """Return a copy whose `open` calls `meanwhile` twice a second and raises its errors.

        `open` may take long: tables may be large, and a database may never answer.
        """
        return RemoteQueries(self._address, self._authkey, meanwhile)

    def open(self, spec: QuerySpec) -> RemoteQuery:
        """See `Queries`."""
        return RemoteQuery(*self._opened({"open": spec.to_json()}))

    def open_aggregation(self, spec: QuerySpec) -> RemoteAggregation:
        """See `Queries`."""
        return RemoteAggregation(*self._opened({"groups": spec.to_json()}))

    def open_join(self, spec: QuerySpec) -> RemoteJoin:
        """See `Queries`."""
        return RemoteJoin(*self._opened({"join": spec.to_json()}))

    def open_over(self, spec: QuerySpec) -> RemoteOver:
        """See `Queries`."""
        return RemoteOver(*self._opened({"over": spec.to_json()}))

    def expanded(self, value: Any, what: str) -> Any:
        """See `References`; the values are those on the driver's host. Also raises as `open`."""
        try:
            connection, answer = self._opened({"expand": value, "what": what})
        except QueryError as error:
            raise ConfigError(str(error)) from None
        connection.close()
        return answer["expanded"]

    def _opened(self, request: dict[str, Any]) -> tuple[Connection, dict[str, Any]]:
        try:
            connection = connect(self._address, self._authkey)
        except OSError as error:
            raise SparkLostError(f"the driver takes no queries: {error}") from error
        try:
            send_at_once(connection)
            answer, _ = ask(connection, request, meanwhile=self._meanwhile)
            return connection, answer
        except BaseException:
            connection.close()
            raise
