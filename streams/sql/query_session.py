"""A Spark session of a query's own: its settings, its views, and plans that run on tables.

A batch is a table in Spark's memory, with one partition. What a plan computes is kept as an RDD,
and only the rows in that partition are replaced for each batch: Spark neither parses, plans nor
generates code again, and broadcast tables stay.
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
from pyspark.core.context import SparkContext
from pyspark.errors import ParseException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.util import _load_from_socket

from common.errors import ConfigError
from streams.engine.user_code import UserCode
from streams.engine.user_frames import place_of
from streams.sql.columns import schema_of
from streams.sql.messages import may_be_a_records_fault, one_line
from streams.sql.output import require_plain_types
from streams.sql.plan import Step, items, require_given, seq, way_to_input
from streams.sql.spec import COLUMNS, QueryError, QuerySpec, SparkLostError
from streams.sql.tables import Rows

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
    # With more groups than this, Spark would sort; a batch is in memory anyway.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(2**31 - 1),
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


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A planned query as an RDD of Arrow batches, which is computed again for each table.

    `columns` are the names of the columns that the operators use. `rows` and `output` are the
    types of the rows that go in and come out.
    """

    session: QuerySession
    columns: tuple[str, ...]
    rows: pa.Schema
    output: pa.Schema
    put: Callable[[Any], Any]
    nothing: Any
    results: Any

    def run(self, table: pa.Table) -> pa.Table:
        """Return the output for these rows; columns that the plan does not use may be missing."""
        session = self.session
        self.put(session.batches(_completed(table, self.rows)).toSeq())
        try:
            served = session.serve(self.results)
        finally:
            self.put(self.nothing)  # or Spark would keep the batch in memory
        with _load_from_socket(served, NoOpSerializer()) as parts:
            batches = [pa.ipc.read_record_batch(pa.py_buffer(part), self.output) for part in parts]
        return pa.Table.from_batches(batches, self.output)


class QuerySession:
    """The Spark session in which one query is analyzed, planned and run.

    Its jobs have the tag `tag`, by which they can be cancelled from another thread.
    """

    def __init__(
        self,
        session: SparkSession,
        spec: QuerySpec,
        code: UserCode,
        hidden: Sequence[pa.Field] = (),
    ) -> None:
        """Take a session that nothing else uses: views and settings belong to a session.

        The view `input` does not have the `hidden` columns of records.
        """
        self.spec = spec
        self.records = pa.schema([*schema_of(spec.format), *hidden])
        """The types of all columns of records."""
        self._code = code
        self._session = session
        settings = _SETTINGS | _SETTINGS_OF_SQL if spec.query else _SETTINGS
        for name, value in settings.items():
            self._session.conf.set(name, value)
        if session.sparkContext.getConf().get(_TIME_ZONE) is None:
            self._session.conf.set(_TIME_ZONE, "UTC")
        jvm: Any = session._jvm
        self.jvm = jvm
        self.java: Any = self._session._jsparkSession
        # Looked up once: each name of a package or class is a call to the JVM.
        self.serve: Callable[[Any], Any] = jvm.PythonRDD.collectAndServe
        self._read_batches: Callable[[str], Any] = jvm.PythonSQLUtils.readArrowStreamFromFile
        self._forbid_programs()
        self._entered = threading.local()
        self.tag = f"query {uuid.uuid4().hex}"

    def enter_thread(self) -> None:
        """Set the Spark session and settings that this thread uses."""
        self.jvm.SparkSession.setActiveSession(self.java)
        if hasattr(self._entered, "done"):
            return
        self._entered.done = True
        context = self._session.sparkContext
        # Shown in Spark's UI for the jobs of the query.
        context.setJobDescription(" ".join((self.spec.query or self.spec.function).split()))
        for name, value in _SETTINGS.items():
            context.setLocalProperty(name, value)
        # A tag and not a group, since the caller may have a group for its jobs.
        context.addJobTag(self.tag)
        context.setInterruptOnCancel(True)

    def analyzed(self, rows: Rows) -> tuple[Any, int]:
        """Return the analyzed plan of the query over these tables, and the id of the RDD `input`.

        Raises `QueryError` if the query reads anything else.
        """
        raw = self.empty(self.records)
        rdd_id = raw._jdf.queryExecution().analyzed().rdd().id()
        for name, table in rows.frames.items():
            plan = table._jdf.queryExecution().analyzed()
            F.broadcast(self.frame(plan)).createOrReplaceTempView(name)
        records = raw.select(*COLUMNS) if len(self.records) > len(COLUMNS) else raw
        records = _parsed(records, self.spec.schema) if self.spec.schema else records
        require_plain_types(records)
        records.createOrReplaceTempView(INPUT)
        analyzed = self._analyze(records)
        rules = self.jvm.org.apache.spark.sql.catalyst
        analyzed = rules.optimizer.InlineCTE(True, False, False).apply(analyzed)
        analyzed = rules.analysis.EliminateSubqueryAliases.apply(analyzed)
        if self.spec.query:
            require_given(analyzed)
            require_plain_types(self.frame(analyzed))
        return analyzed, rdd_id

    def is_reusable(self, analyzed: Any) -> bool:
        """Whether a plan gives the same for the same records, always."""
        pattern = self.jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        return (
            analyzed.deterministic()
            and not analyzed.containsPattern(pattern)
            and _TIME_IN_WORDS.search(self.spec.query) is None
        )

    def frame(self, plan: Any) -> DataFrame:
        """Return an analyzed plan as a DataFrame."""
        dataset = self.jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self.java, plan), self._session)

    def empty(self, schema: pa.Schema) -> DataFrame:
        """Return a DataFrame of these types without rows."""
        types = from_arrow_schema(schema)
        return self._session.createDataFrame(self._session.sparkContext.emptyRDD(), types)

    def kept(
        self,
        frame: DataFrame,
        plan: Any,
        rdd_id: int,
        rows: pa.Schema,
        others: Sequence[str] = (),
    ) -> KeptPlan:
        """Return a physical plan, with the types of `frame`, that can be run on many tables.

        `rows` are the types of the RDD with this id, which the plan scans. Raises `QueryError` if
        an operator on the way to it does not work row by row, and is not of the kinds `others`.
        """
        way, scan = way_to_input(plan, rdd_id, others)
        rdd = self._rdd(rows)
        node = self.scan(rdd, scan, items(scan.output()))
        for step in reversed(way):
            node = step.over(node, self.jvm)
        (partition,) = rdd.partitions()
        return KeptPlan(
            self,
            _used(way, scan),
            rows,
            to_arrow_schema(frame.schema, timezone="UTC"),
            # Each job sends the partition to where it is computed, with the batches in it.
            getattr(partition, "values_$eq"),
            seq(self.jvm, []),
            frame._jdf.toArrowBatchRdd(node),
        )

    def prepared(self, plan: Any) -> Any:
        """Return a physical plan as Spark would execute it: with broadcasts and compiled code."""
        execution = self.jvm.org.apache.spark.sql.execution
        return execution.QueryExecution.prepareExecutedPlan(self.java, plan)

    def scan(self, rdd: Any, like: Any, columns: Sequence[Any]) -> Any:
        """Return a scan of an RDD that gives these attributes, with the properties of another."""
        make = self.jvm.org.apache.spark.sql.execution.RDDScanExec
        others = like.outputPartitioning(), like.outputOrdering(), like.stream()
        return make(seq(self.jvm, [*columns]), rdd, like.name(), *others)

    def batches(self, table: pa.Table) -> Any:
        """Return a table as an iterator of Arrow batches in the JVM."""
        context: SparkContext = self._session.sparkContext
        batches = table.combine_chunks().to_batches()
        if not batches:
            batches = [pa.RecordBatch.from_pylist([], schema=table.schema)]
        return context._serialize_to_jvm(
            batches, ArrowStreamSerializer(), self._read_batches, self.jvm.ArrowIteratorServer
        )

    def _rdd(self, schema: pa.Schema) -> Any:
        """Return an RDD with one partition of no rows."""
        batches, types = self.batches(schema.empty_table()), from_arrow_schema(schema)
        frame = self.jvm.PythonSQLUtils.toDataFrame(batches, types.json(), self.java)
        return frame.queryExecution().analyzed().rdd()

    def _forbid_programs(self) -> None:
        """Remove the functions by which a query could call any Java method."""
        registry = self.java.sessionState().functionRegistry()
        option = self.jvm.scala.Option.apply
        identifier = self.jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        for name in _DANGEROUS:
            registry.dropFunction(identifier(name, option("builtin"), option("system")))

    def _analyze(self, records: DataFrame) -> Any:
        """Return the analyzed plan of the user's query, without executing any of it."""
        spec = self.spec
        if spec.query:
            state = self.java.sessionState()
            parsed = _parse(state.sqlParser(), spec.query)
            mode = self.jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
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


@contextmanager
def translated() -> Iterator[None]:
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


def _completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with all columns; missing ones, which the plan does not use, are null."""
    return pa.Table.from_arrays(
        [
            table[field.name]
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
            for field in schema
        ],
        schema=schema,
    )


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
