"""A session, tables, and a plan that follows the tables: what all running queries have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.streams.spark.zone import new_session
from kafka_pipeline.streams.sql.messages import translated
from kafka_pipeline.streams.sql.prepared_calls import Plans, PreparedCalls
from kafka_pipeline.streams.sql.query_session import Analyzed, QuerySession
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.tables import GlobalRows, Rows, SharedTables, Tables


class Shape(Protocol):
    """What the caller of a query keeps."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""


P = TypeVar("P")
S = TypeVar("S", bound=Shape)

logger = structlog.get_logger()


class Running(PreparedCalls, Generic[P]):
    """A query that was planned once, as a `P`, and again whenever its tables have other rows."""

    hidden: ClassVar[Sequence[pa.Field]] = ()
    """Columns that records have for the engine alone."""

    def __init__(
        self,
        session: SparkSession,
        spec: QuerySpec,
        tables: Tables,
        code: UserCode,
        shared: SharedTables,
    ) -> None:
        """Plan the query. Raises `QueryError` with the reason if it cannot be run."""
        self._tables = tables
        self._shared = shared
        # Each query has its own session, since views and settings belong to a session.
        self._session = new_session(session)
        self.work = QuerySession(self._session, spec, code, self.hidden)
        self._globals = GlobalRows(session, spec)
        rows = self._globals.with_others(tables.rows)
        self.plan = self.tried_out(rows)
        self._seen = rows.version

    @abstractmethod
    def tried_out(self, rows: Rows) -> P:
        """Return a plan that was run on empty tables: Spark finds some mistakes only then.

        Raises `QueryError` if there is none.
        """

    @abstractmethod
    def named(self, plan: P) -> Plans:
        """Return the plans that calls run."""

    @property
    def known_plans(self) -> Plans:
        return self.named(self.plan)

    @property
    def is_fixed(self) -> bool:
        """Whether `newest_plans` are always the same."""
        spec = self.work.spec
        return not spec.global_tables and not any(
            table.get("refresh_s") for table in spec.all_tables.values()
        )

    def newest_plans(self) -> Plans:
        """See `PreparedCalls`. Raises `QueryError` and `SparkLostError`."""
        with translated():
            return self.named(self.newest_plan())

    @property
    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What callers in other processes need to know besides the plans, as JSON values."""

    @property
    def socket_path(self) -> str:
        """See `QueryPlans`."""
        return self.work.plans.socket_path

    def ask(self, request: bytes | memoryview) -> memoryview:
        """See `Ask`."""
        return self.work.plans.ask(request)

    def require_same_state(self, plan: P) -> None:
        """Raise `QueryError` if another plan cannot go on with the state of this one."""

    def newest_plan(self) -> P:
        """Return the plan for the newest rows of the tables that the query can be run with."""
        rows = self._globals.with_others(self._tables.rows)
        if rows.version != self._seen:
            self._seen = rows.version
            try:
                with translated():
                    plan = self.tried_out(rows)
                self.require_same_state(plan)
                self.plan = plan
            except QueryError as error:
                logger.warning("query keeps the old rows of its tables", reason=error.shown)
        return self.plan

    def replace(self, name: str, rows: pa.Table) -> None:
        """See `SparkQuery.replace`."""
        with translated():
            self._globals.replace(name, rows)

    def cancel(self) -> None:
        """End a call from another thread: it then raises `SparkLostError`."""
        self.work.cancel()

    def close(self) -> None:
        """Release the tables."""
        self._shared.give_back(self._tables)


@dataclass(frozen=True, slots=True)
class Planned(Generic[S]):
    """The plans of a query, and the `shape` of what its caller keeps."""

    shape: S
    plans: Plans


class RunningState(Running[Planned[S]]):
    """A running query whose caller keeps something."""

    @property
    def shape(self) -> S:
        """What the caller keeps."""
        return self.plan.shape

    @property
    def described(self) -> dict[str, Any]:
        return {"shape": self.shape.to_json()}

    @abstractmethod
    def planned(self, found: Analyzed) -> Planned[S]:
        """Return the plans of the query. Raises `QueryError` if there are none."""

    @abstractmethod
    def run_on_nothing(self, shape: S, plans: Plans) -> None:
        """Run each plan on an empty table."""

    def named(self, plan: Planned[S]) -> Plans:
        return plan.plans

    def require_same_state(self, plan: Planned[S]) -> None:
        if plan.shape != self.shape:
            raise QueryError("with the new rows, the query would keep other columns")

    def tried_out(self, rows: Rows) -> Planned[S]:
        plan = self.planned(self.work.analyzed(rows))
        self.run_on_nothing(plan.shape, plan.plans)
        return plan
