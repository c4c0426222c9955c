"""Runs queries on a Spark session, batch by batch; each is planned only once, if possible.

A batch is a table in Spark's memory, with one partition. The physical plan of a query is kept. For
each batch, only the scan of the input is replaced, so Spark neither parses nor plans again, and
broadcast tables stay. A plan that depends on a random number or the time is made for each batch.
"""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import structlog
from pyspark.core.context import SparkContext
from pyspark.errors import ParseException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.util import _load_from_socket

from common.errors import ConfigError
from common.table_settings import TableSettings
from streams.engine.user_code import UserCode
from streams.engine.user_frames import place_of
from streams.sql.access import located, require_readable
from streams.sql.columns import schema_of
from streams.sql.messages import may_be_a_records_fault, one_line
from streams.sql.output import require_plain_types, shaped
from streams.sql.plan import (
    Step,
    items,
    require_given,
    require_narrow,
    way_to_input,
    with_timestamp,
)
from streams.sql.spec import COLUMNS, QueryError, QuerySpec, SparkLostError
from streams.sql.tables import Rows, SharedTables, Tables

INPUT = "input"

_SETTINGS = {
    # A batch is an RDD of one partition, never a LocalRelation: Spark interprets those instead of
    # compiling, and would broadcast one that is smaller than a lookup table.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    # Above Spark's estimate for a join of tables, the product of their sizes; below that for a
    # batch.
    "spark.sql.autoBroadcastJoinThreshold": str(2**62),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    # Keys and values are read with 32-bit offsets.
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # Otherwise, fields that the query does not use would not be checked.
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    # This rule removes `input` from a join with a table that is empty at the moment.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
    ),
}
_SETTINGS_OF_SQL = {
    # FROM csv.`/path` would read files that the TaskManager's config.yaml does not allow.
    "spark.sql.runSQLOnFiles": "false",
    # '${env:KAFKA_PASSWORD}' would be the password.
    "spark.sql.variable.substitute": "false",
}
_TIME_ZONE = "spark.sql.session.timeZone"
# This logger would log every error of a query a second time, with the whole stack.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
_DANGEROUS = ("reflect", "java_method", "try_reflect")
# Such as TIMESTAMP 'now', which Spark turns into a constant while it parses or plans.
_TIME_IN_WORDS = re.compile(r"""['"]\s*(?:now|today|tomorrow|yesterday)\b""", re.IGNORECASE)

logger = structlog.get_logger()


class SparkQueries:
    """The queries that run on one Spark session; any thread may open one."""

    def __init__(
        self, session: SparkSession, code: UserCode, readable: TableSettings, refusal: str = ""
    ) -> None:
        """Allow lookup tables that are `readable`; a `refusal` is the reason to refuse all."""
        self._refusal = refusal
        self._readable = readable
        self._session = session
        self._code = code
        self._tables = SharedTables(session)

    def open(self, spec: QuerySpec) -> RunningQuery:
        """See `Queries.open`."""
        if self._refusal:
            raise QueryError(self._refusal)
        require_readable(self._readable, spec.tables)
        with _translated():
            tables = self._tables.take(located(self._readable, spec.tables))
            try:
                return RunningQuery(self._session, spec, tables, self._code, self._tables)
            except BaseException:
                self._tables.give_back(tables)
                raise


@dataclass(frozen=True, slots=True)
class _Plan:
    """A planned query: the operators from the result down, and the scan of the input."""

    frame: DataFrame
    way: Sequence[Step]
    make_scan: Callable[[Any], Any]
    rows: Rows
    is_reusable: bool
    columns: tuple[str, ...]
    output: pa.Schema


class RunningQuery:
    """See `SparkQuery`."""

    def __init__(
        self,
        session: SparkSession,
        spec: QuerySpec,
        tables: Tables,
        code: UserCode,
        shared: SharedTables,
    ) -> None:
        self._spec = spec
        self._tables = tables
        self._shared = shared
        self._code = code
        self._schema = schema_of(spec.format)
        self._types = from_arrow_schema(self._schema)
        # Each query has its own session, since views and settings belong to a session.
        self._session = session.newSession()
        settings = _SETTINGS | _SETTINGS_OF_SQL if spec.query else _SETTINGS
        for name, value in settings.items():
            self._session.conf.set(name, value)
        if session.sparkContext.getConf().get(_TIME_ZONE) is None:
            self._session.conf.set(_TIME_ZONE, "UTC")
        self._jvm: Any = session._jvm
        self._java: Any = self._session._jsparkSession
        self._forbid_programs()
        self._entered = threading.local()
        self._tag = f"query {uuid.uuid4().hex}"
        self._types_json = self._types.json()
        self._plan = self._tried_out(tables.rows)
        self._seen = self._plan.rows.version

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of records that the query needs."""
        return self._plan.columns

    def run(self, table: pa.Table) -> pa.Table:
        """See `SparkQuery.run`."""
        with _translated():
            self._enter_thread()
            plan = self._newest_plan()
            if not set(table.column_names).issuperset(plan.columns):
                raise SparkLostError("a table has changed, and the query needs other columns now")
            return self._run(plan, table)

    def cancel(self) -> None:
        """End `run` from another thread: it then raises `SparkLostError`."""
        self._session.sparkContext.cancelJobsWithTag(self._tag)

    def close(self) -> None:
        """Release the tables."""
        self._shared.give_back(self._tables)

    def _forbid_programs(self) -> None:
        """Remove the functions by which a query could call any Java method."""
        registry = self._java.sessionState().functionRegistry()
        option = self._jvm.scala.Option.apply
        identifier = self._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        for name in _DANGEROUS:
            registry.dropFunction(identifier(name, option("builtin"), option("system")))

    def _enter_thread(self) -> None:
        """Set the Spark session and settings that this thread uses."""
        self._jvm.SparkSession.setActiveSession(self._java)
        if hasattr(self._entered, "done"):
            return
        self._entered.done = True
        context = self._session.sparkContext
        # Shown in Spark's UI for the jobs of the query.
        context.setJobDescription(" ".join((self._spec.query or self._spec.function).split()))
        for name, value in _SETTINGS.items():
            context.setLocalProperty(name, value)
        # A tag and not a group, since the caller may have a group for its jobs.
        context.addJobTag(self._tag)
        context.setInterruptOnCancel(True)

    def _newest_plan(self) -> _Plan:
        """Return the plan for the newest rows of the tables that the query can be run with."""
        rows = self._tables.rows
        if rows.version != self._seen:
            self._seen = rows.version
            try:
                with _translated():
                    self._plan = self._tried_out(rows)
                return self._plan
            except QueryError as error:
                logger.warning("query keeps the old rows of its tables", reason=str(error))
        if not self._plan.is_reusable:
            try:
                with _translated():
                    self._plan = self._make_plan(self._plan.rows)
            except QueryError as error:
                raise SparkLostError(f"the query cannot be planned again: {error}") from error
        return self._plan

    def _tried_out(self, rows: Rows) -> _Plan:
        """Return a plan that was run on an empty table: Spark finds some mistakes only then."""
        plan = self._make_plan(rows)
        self._run(plan, self._schema.empty_table())
        return plan

    def _make_plan(self, rows: Rows) -> _Plan:
        self._enter_thread()
        raw = self._session.createDataFrame(self._session.sparkContext.emptyRDD(), self._types)
        rdd_id = raw._jdf.queryExecution().analyzed().rdd().id()
        for name, table in rows.frames.items():
            plan = table._jdf.queryExecution().analyzed()
            F.broadcast(self._frame(plan)).createOrReplaceTempView(name)
        records = _parsed(raw, self._spec.schema) if self._spec.schema else raw
        require_plain_types(records)
        records.createOrReplaceTempView(INPUT)
        analyzed = self._analyze(records)
        rules = self._jvm.org.apache.spark.sql.catalyst
        analyzed = rules.optimizer.InlineCTE(True, False, False).apply(analyzed)
        analyzed = rules.analysis.EliminateSubqueryAliases.apply(analyzed)
        if self._spec.query:
            require_given(analyzed)
            require_plain_types(self._frame(analyzed))
        require_narrow(analyzed, rdd_id)
        if not any(a.name().lower() == "timestamp" for a in items(analyzed.output())):
            analyzed = with_timestamp(analyzed, rdd_id, self._jvm)
        frame = shaped(self._frame(analyzed), self._spec.format)
        execution = frame._jdf.queryExecution()
        way, scan = way_to_input(execution.executedPlan(), rdd_id)
        pattern = rules.trees.TreePattern.CURRENT_LIKE()
        final = execution.analyzed()
        return _Plan(
            frame,
            way,
            self._maker_of(scan),
            rows,
            is_reusable=final.deterministic()
            and not final.containsPattern(pattern)
            and _TIME_IN_WORDS.search(self._spec.query) is None,
            columns=_used(way, scan),
            output=to_arrow_schema(frame.schema, timezone="UTC"),
        )

    def _analyze(self, records: DataFrame) -> Any:
        """Return the analyzed plan of the user's query, without executing any of it."""
        spec = self._spec
        if spec.query:
            state = self._java.sessionState()
            parsed = _parse(state.sqlParser(), spec.query)
            mode = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
            execution = state.executePlan(parsed, mode)
            execution.assertAnalyzed()
            return execution.analyzed()
        function = self._code.load(spec.function)
        try:
            frame = function(records, **spec.config)
        except Exception as error:
            place = place_of(error)
            raise QueryError(
                f"{spec.function} fails: {type(error).__name__}: {one_line(error)}"
                + (f" ({place})" if place else "")
            ) from error
        if not isinstance(frame, DataFrame):
            raise QueryError(
                f"{spec.function} returns a {type(frame).__name__}: it must return a DataFrame"
            )
        return frame._jdf.queryExecution().analyzed()

    def _frame(self, plan: Any) -> DataFrame:
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._java, plan), self._session)

    def _run(self, plan: _Plan, table: pa.Table) -> pa.Table:
        node = plan.make_scan(self._rdd(self._completed(table)))
        for step in reversed(plan.way):
            node = step.over(node, self._jvm)
        rdd = plan.frame._jdf.toArrowBatchRdd(node)
        served = self._jvm.PythonRDD.collectAndServe(rdd)
        with _load_from_socket(served, NoOpSerializer()) as parts:
            batches = [pa.ipc.read_record_batch(pa.py_buffer(part), plan.output) for part in parts]
        return pa.Table.from_batches(batches, plan.output)

    def _maker_of(self, scan: Any) -> Callable[[Any], Any]:
        """Return a function that makes a scan like this one, but of other rows."""
        make = self._jvm.org.apache.spark.sql.execution.RDDScanExec
        output, name = scan.output(), scan.name()
        others = scan.outputPartitioning(), scan.outputOrdering(), scan.stream()
        return lambda rdd: make(output, rdd, name, *others)

    def _completed(self, table: pa.Table) -> pa.Table:
        """Return a table with all columns; missing ones, which the plan does not use, are null."""
        return pa.Table.from_arrays(
            [
                table[field.name]
                if field.name in table.column_names
                else pa.nulls(len(table), field.type)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def _rdd(self, table: pa.Table) -> Any:
        """Return the rows of a table as an RDD of one partition."""
        context: SparkContext = self._session.sparkContext
        batches = table.combine_chunks().to_batches()
        if not batches:
            batches = [pa.RecordBatch.from_pylist([], schema=table.schema)]
        rows = context._serialize_to_jvm(
            batches,
            ArrowStreamSerializer(),
            self._jvm.PythonSQLUtils.readArrowStreamFromFile,
            self._jvm.ArrowIteratorServer,
        )
        frame = self._jvm.PythonSQLUtils.toDataFrame(rows, self._types_json, self._java)
        return frame.queryExecution().analyzed().rdd()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn Spark's errors into `QueryError` and `SparkLostError`."""
    try:
        yield
    except (QueryError, SparkLostError):
        raise
    except ConfigError as error:
        raise QueryError(str(error)) from error
    except Exception as error:
        if may_be_a_records_fault(error):
            raise QueryError(one_line(error)) from error
        raise SparkLostError(f"{type(error).__name__}: {one_line(error)}") from error


def _parse(parser: Any, query: str) -> Any:
    """Return the plan of a query; the grammar's rule for queries lets no command through.

    Analysis would run the string in EXECUTE IMMEDIATE, and a script consists of statements.
    """
    text = query.rstrip("; \t\r\n")
    parser.parsePlan(text)  # gives a better error for text that is not a statement at all
    try:
        return parser.parseQuery(text)
    except ParseException as error:
        raise QueryError("only a SELECT that reads input can be run") from error


def _parsed(raw: DataFrame, schema: str) -> DataFrame:
    """Return the records with the fields of their JSON values as columns, after the key."""
    value = F.from_json("value", schema, {"mode": "FAILFAST"}).alias("value")
    others = [name for name in COLUMNS if name not in ("key", "value")]
    return raw.select("key", value, *others).select("key", "value.*", *others)


def _used(way: Sequence[Step], scan: Any) -> tuple[str, ...]:
    """Return the columns of the input that the operators above it use, at least one.

    A table without columns would have no rows.
    """
    used = {
        attribute.exprId().id()
        for step in way
        for attribute in items(step.node.references().toSeq())
    }
    names = tuple(a.name() for a in items(scan.output()) if a.exprId().id() in used)
    return names or ("timestamp",)
