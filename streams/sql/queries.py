"""Runs queries on a Spark session, batch by batch; opens the tables that they may read.

A query is planned once, unless its plan depends on a random number or the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.table_paths import Location, location_of
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.spark.zone import TIME_ZONE, new_session
from kafka_pipeline.streams.sql.access import Readable, is_of_files
from kafka_pipeline.streams.sql.analyzed_groups import groups_of, is_grouped
from kafka_pipeline.streams.sql.compiled_plan import CompiledPlan
from kafka_pipeline.streams.sql.declared_groups import undeclared
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.messages import translated
from kafka_pipeline.streams.sql.output import shaped
from kafka_pipeline.streams.sql.plan import (
    input_column,
    require_all_inputs,
    require_narrow,
    with_column,
    with_time,
)
from kafka_pipeline.streams.sql.prepared_calls import Plans, QueryCalls
from kafka_pipeline.streams.sql.query_session import Analyzed, QuerySession
from kafka_pipeline.streams.sql.running import Running
from kafka_pipeline.streams.sql.running_aggregation import RunningAggregation, RunningRetraction
from kafka_pipeline.streams.sql.running_join import RunningJoin
from kafka_pipeline.streams.sql.running_over import RunningOver
from kafka_pipeline.streams.sql.spec import RECORD, QueryError, QuerySpec, SparkLostError
from kafka_pipeline.streams.sql.split_plan import passed_columns, split_results
from kafka_pipeline.streams.sql.split_results import SplitResults
from kafka_pipeline.streams.sql.table_joins import at_record_times, require_keyed_joins
from kafka_pipeline.streams.sql.tables import Rows, SharedTables, Tables

T = TypeVar("T")


class SparkQueries:
    """`Queries` on one Spark session; any thread may open one."""

    def __init__(
        self, session: SparkSession, code: UserCode, readable: Readable, refusal: str = ""
    ) -> None:
        """Allow what is `readable`; a `refusal` is the reason to refuse all queries."""
        self._refusal = refusal
        self._readable = readable
        self._session = session
        self._code = code
        self._tables = SharedTables(session, partial(opened_tables, session, readable))

    @property
    def spark_id(self) -> str:
        """The id of the running Spark, another one for each start, and the zone of its times."""
        zone = self._session.conf.get(TIME_ZONE)
        return f"{self._session.sparkContext.applicationId} {zone}"

    def open(self, spec: QuerySpec) -> RunningQuery:
        return self._opened(spec, RunningPassing if spec.changelog else RunningQuery)

    def open_aggregation(self, spec: QuerySpec) -> RunningAggregation:
        """Prepare a query with GROUP BY, whose state the caller keeps. Raises as `open` does."""
        return self._opened(spec, RunningRetraction if spec.changelog else RunningAggregation)

    def open_join(self, spec: QuerySpec) -> RunningJoin:
        """Prepare a query that joins two inputs, whose rows the caller keeps. Raises as `open`."""
        return self._opened(spec, RunningJoin)

    def open_over(self, spec: QuerySpec) -> RunningOver:
        """Prepare a query with `OVER (…)`, whose rows the caller keeps. Raises as `open`."""
        return self._opened(spec, RunningOver)

    def result(self, spec: QuerySpec) -> str:
        """Return the types of a query's result, as JSON of Spark. Raises as `open` does."""
        return self._opened(spec, _result_type)

    def _opened(self, spec: QuerySpec, kind: Callable[..., T]) -> T:
        if self._refusal:
            raise QueryError(self._refusal)
        # So that all mistakes show, before anything is read.
        self._readable.opened(spec.all_tables, spec.processor)
        spec = replace(spec, config=self._readable.arguments(spec.config, spec.processor))
        with translated():
            tables = self._tables.take(spec.all_tables)
            try:
                return kind(self._session, spec, tables, self._code, self._tables)
            except BaseException:
                self._tables.give_back(tables)
                raise


def _result_type(
    session: SparkSession, spec: QuerySpec, tables: Tables, code: UserCode, shared: SharedTables
) -> str:
    work = QuerySession(new_session(session), spec, code)
    found = work.result(tables.rows).json()
    shared.give_back(tables)
    return found


@dataclass(frozen=True, slots=True)
class _Plan:
    """A planned query, and the rows of the tables that it was planned with."""

    compiled: CompiledPlan
    rows: Rows
    is_reusable: bool
    split: SplitResults | None
    parts: CompiledPlan | None
    """What the split needs; `None` without one, and if that needs nothing."""


class RunningQuery(Running[_Plan], QueryCalls):
    """See `SparkQuery`."""

    hidden = (pa.field(RECORD, pa.int64()),)
    gives_record: ClassVar[bool] = False
    """Whether whole results have `RECORD`. They are never split then."""

    def __init__(
        self,
        session: SparkSession,
        spec: QuerySpec,
        tables: Tables,
        code: UserCode,
        shared: SharedTables,
    ) -> None:
        super().__init__(session, spec, tables, code, shared)
        self.split = self.plan.split
        """See `SparkQuery`. It stays the same for other rows of the tables."""

    @property
    def is_fixed(self) -> bool:
        return self.plan.is_reusable and super().is_fixed

    @property
    def described(self) -> dict[str, Any]:
        return {"split": self.split and self.split.to_json()}

    def named(self, plan: _Plan) -> Plans:
        if plan.parts is None or plan.split != self.split:
            return {"run": plan.compiled}
        return {"run": plan.compiled, "parts": plan.parts}

    def newest_plan(self) -> _Plan:
        """See `Running`; a plan that cannot be used twice is made again."""
        before, plan = self.plan, super().newest_plan()
        if plan is before and not plan.is_reusable:
            try:
                with translated():
                    self.plan = self._make_plan(plan.rows)
            except QueryError as error:
                failed = "the query cannot be planned again: "
                raise SparkLostError(f"{failed}{error}", shown=f"{failed}{error.shown}") from error
        return self.plan

    def tried_out(self, rows: Rows) -> _Plan:
        plan = self._make_plan(rows)
        for compiled in filter(None, (plan.compiled, plan.parts)):
            compiled.run(self.work.records.empty_table())
        return plan

    def _make_plan(self, rows: Rows) -> _Plan:
        work = self.work
        query = work.analyzed(rows)
        analyzed, rdd_id = query.plan, query.rdd_id
        require_all_inputs(analyzed, query.inputs)
        if work.spec.function and is_grouped(analyzed, rdd_id):
            groups = groups_of(analyzed, rdd_id, work.spec.max_collected, work.make)
            raise undeclared(
                work.spec.function, groups.window, has_key=groups.key_column is not None
            )
        require_narrow(analyzed, rdd_id)
        require_keyed_joins(analyzed, rdd_id, query.tables)
        analyzed = at_record_times(analyzed, rdd_id, query.versioned, work.make)
        analyzed = with_time(analyzed, rdd_id, work.make)
        hidden = [RECORD] if self.gives_record else []
        if hidden:
            analyzed = with_column(analyzed, RECORD, rdd_id, work.make)
        frame = shaped(work.frame(analyzed), work.spec, hidden)
        is_reusable = work.is_reusable(frame._jdf.queryExecution().analyzed())
        compiled = self._compiled(frame, query)
        if hidden or not is_reusable:
            # To plan twice for each batch would gain nothing.
            return _Plan(compiled, rows, is_reusable, None, None)
        return _Plan(compiled, rows, is_reusable, *self._split_plan(analyzed, query))

    def _compiled(self, frame: DataFrame, query: Analyzed) -> CompiledPlan:
        records = query.records[query.rdd_id]
        return self.work.compiled(frame, self.work.leaves(query), records=records)

    def _split_plan(
        self, analyzed: Any, query: Analyzed
    ) -> tuple[SplitResults | None, CompiledPlan | None]:
        """Return how results are split, if they are, and the plan for that, if it needs one."""
        work, rdd_id = self.work, query.rdd_id
        passed = passed_columns(analyzed, rdd_id, work.make)
        if not passed.names:
            return None, None
        number = input_column(analyzed, RECORD, rdd_id)
        numbered = with_column(analyzed, RECORD, rdd_id, work.make)
        numbered = work.make.project([*items(analyzed.output()), number], numbered)
        fields = query.records[rdd_id].fields
        names = () if fields is None else fields.names
        results, frame = split_results(work.frame(numbered), work.spec, passed, names)
        if results is None or frame is None:
            return results, None
        parts = self._compiled(frame, query)
        used = () if parts.fields is None else parts.fields.used
        needed = [name for name in parts.columns if not used or name != "value"]
        return replace(results, needed=(*needed, *used)), parts


class RunningPassing(RunningQuery):
    """A query over a changelog; its results have the index of the record that they stem from."""

    gives_record = True


def opened_tables(
    session: SparkSession, readable: Readable, tables: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return tables as `Readable.opened` does, whose files of this host may be read right now."""
    found = readable.opened(tables)
    for name, table in found.items():
        if is_of_files(table["format"]):
            location = location_of(tables[name]["path"], readable.tables.folder)
            _require_readable(session, readable.tables, name, location)
    return found


def _require_readable(
    session: SparkSession, settings: TableSettings, name: str, location: Location
) -> None:
    """Raise `QueryError` if a file of this host must not be read.

    Patterns and folders may lead to links, and links anywhere. So each file is checked right before
    a table is read. Remote file systems have no links that a command could use.
    """
    if not location.is_on_host:
        return
    with translated():
        files = list(_files(session, location))
    for file in files:
        # A link is followed here, and a wildcard in the name of a file stays what it is.
        names = os.path.realpath(file).split("/")
        wrong = settings.path_problem(Location("file", "", tuple(filter(None, names))))
        if wrong:
            raise QueryError(f'table "{name}": the file {file}, to which its path leads, {wrong}')


def _files(session: SparkSession, location: Location) -> Iterator[str]:
    """Yield the files and folders that a location leads to, with all in them but hidden ones."""
    seen: set[str] = set()
    for root in _roots(session, location):
        yield root
        for folder, folders, files in os.walk(root, followlinks=True):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in [*folders, *files]:
                if not name.startswith("."):
                    yield os.path.join(folder, name)
            real = os.path.realpath(folder)
            if real in seen:
                folders[:] = []
            seen.add(real)


def _roots(session: SparkSession, location: Location) -> Iterator[str]:
    """Yield the files and folders that a location names, as Hadoop understands its wildcards."""
    if not location.pattern:
        yield str(location.path)
        return
    jvm: Any = session._jvm
    java: Any = session._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(location.uri)
    for status in path.getFileSystem(java.sessionState().newHadoopConf()).globStatus(path) or ():
        yield str(Path(status.getPath().toUri().getPath()))
