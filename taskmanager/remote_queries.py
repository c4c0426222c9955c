"""The worker's side of the query channel: queries that the driver plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.sql.arrow_bytes import write
from kafka_pipeline.streams.sql.compiled_plan import CompiledPlan
from kafka_pipeline.streams.sql.join_shape import JoinShape
from kafka_pipeline.streams.sql.over_shape import OverShape
from kafka_pipeline.streams.sql.plan_calls import BatchSocket
from kafka_pipeline.streams.sql.prepared_calls import (
    AggregationCalls,
    JoinCalls,
    OverCalls,
    Plans,
    PreparedCalls,
    QueryCalls,
)
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, SparkLostError
from kafka_pipeline.streams.sql.split_results import SplitResults
from kafka_pipeline.streams.sql.state_shape import StateShape
from kafka_pipeline.taskmanager.listening import connect
from kafka_pipeline.taskmanager.query_channel import ask, send_at_once


class RemoteQueries:
    """`Queries` on the driver: the worker's side of `QueryServer`."""

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
        return RemoteQuery(*self._opened({"open": spec.to_json()}))

    def open_aggregation(self, spec: QuerySpec) -> RemoteAggregation:
        return RemoteAggregation(*self._opened({"groups": spec.to_json()}))

    def open_join(self, spec: QuerySpec) -> RemoteJoin:
        return RemoteJoin(*self._opened({"join": spec.to_json()}))

    def open_over(self, spec: QuerySpec) -> RemoteOver:
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
            raise SparkLostError(f"the driver does not accept queries: {error}") from error
        try:
            send_at_once(connection)
            answer, _ = ask(connection, request, meanwhile=self._meanwhile)
            return connection, answer
        except BaseException:
            connection.close()
            raise


class _Remote(PreparedCalls):
    """A `SparkQuery`, or another `Prepared`, that the driver plans; see `PreparedCalls`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        """Take a connection of its own, and the answer to the request that opened it."""
        self._connection = connection
        self._is_fixed = answer["is_fixed"]
        try:
            self._socket = BatchSocket(answer["socket"]) if answer["socket"] else None
        except SparkLostError:
            connection.close()
            raise
        self._plans = self._read(answer["plans"])

    @property
    def known_plans(self) -> Plans:
        return self._plans

    def newest_plans(self) -> Plans:
        if not self._is_fixed:
            answer, _ = ask(self._connection, {"do": "plans"})
            if answer:
                self._plans = self._read(answer["plans"])
        return self._plans

    def replace(self, name: str, rows: pa.Table) -> None:
        ask(self._connection, {"do": "replace", "table": name}, write(rows))

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
        if self._socket is not None:
            self._socket.close()

    def _read(self, plans: Mapping[str, Any]) -> Plans:
        return {name: self._plan(plan, name) for name, plan in plans.items()}

    def _plan(self, plan: Mapping[str, Any], name: str) -> CompiledPlan:
        ask_jvm = self._ask_driver if self._socket is None else self._socket.ask
        return CompiledPlan.from_json(plan, ask_jvm, cache(partial(self._parser, name)))

    def _ask_driver(self, request: bytes | memoryview) -> memoryview:
        return ask(self._connection, {"do": "ask"}, request)[1]

    def _parser(self, name: str) -> CompiledPlan:
        answer, _ = ask(self._connection, {"do": "parser", "of": name})
        return self._plan(answer["plan"], name)


class RemoteQuery(_Remote, QueryCalls):
    """See `SparkQuery`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.split = SplitResults.from_json(answer["split"])


class RemoteAggregation(_Remote, AggregationCalls):
    """See `PreparedAggregation`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.shape = StateShape.from_json(answer["shape"])


class RemoteJoin(_Remote, JoinCalls):
    """See `PreparedJoin`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.shape = JoinShape.from_json(answer["shape"])


class RemoteOver(_Remote, OverCalls):
    """See `PreparedOver`."""

    def __init__(self, connection: Connection, answer: Mapping[str, Any]) -> None:
        super().__init__(connection, answer)
        self.shape = OverShape.from_json(answer["shape"])
