"""A Spark session of a query's own: its settings, functions, views, and plans over tables.

A batch is a table in Spark's memory, with one partition; see `CompiledPlan`.
"""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.code.user_frames import place_of
from kafka_pipeline.streams.spark.zone import new_session
from kafka_pipeline.streams.sql.batch_server import QueryPlans
from kafka_pipeline.streams.sql.catalyst import Catalyst, scala_object
from kafka_pipeline.streams.sql.columns import (
    has_items,
    lookup_schema,
    schema_of,
    versions_schema,
)
from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.forbidden_functions import forbid_functions, require_known_options
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.json_fields import TYPES, JsonFields
from kafka_pipeline.streams.sql.messages import one_line, without_values
from kafka_pipeline.streams.sql.output import finite_fields, require_plain_types
from kafka_pipeline.streams.sql.plan import (
    in_one_partition,
    kind,
    reads_input,
    require_by_record,
    require_given,
    used_places,
)
from kafka_pipeline.streams.sql.query_text import as_spark_reads, require_one_statement, without_end
from kafka_pipeline.streams.sql.spec import (
    COLUMNS,
    QueryError,
    QuerySpec,
)
from kafka_pipeline.streams.sql.stage_rows import (
    READING,
    fields_of,
    restored,
    rows_of_columns,
    seen,
)
from kafka_pipeline.streams.sql.state_shape import OPEN_FROM
from kafka_pipeline.streams.sql.table_joins import HASH_JOIN, joined_in_place, require_planned_joins
from kafka_pipeline.streams.sql.tables import STRICT, GlobalRows, Rows, parsed_table

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
    # If a Python function ends its process by a signal, Spark's error has the stack.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # With more groups than this, Spark would sort; a batch is in memory anyway.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(2**31 - 1),
    # In the default mode, a struct with two fields of one name, which SQL allows, is an error.
    "spark.sql.execution.pandas.structHandlingMode": "row",
}
_SETTINGS_OF_SQL = {
    # FROM csv.`/path` would read files that the TaskManager's config.yaml does not allow.
    "spark.sql.runSQLOnFiles": "false",
    # '${env:KAFKA_PASSWORD}' would be the password.
    "spark.sql.variable.substitute": "false",
}
# This logger would log every error of a query a second time, with the whole stack.
for _name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)
_PATTERNS_OF_ROWS = re.compile(r"\bmatch_recognize\s*\(", re.IGNORECASE)
# Such as TIMESTAMP 'now', which Spark turns into a constant while it parses or plans.
_TIME_IN_WORDS = re.compile(r"""['"]\s*(?:now|today|tomorrow|yesterday)\b""", re.IGNORECASE)

Schema = str | StructType
"""The fields of JSON values: as the user has written them, or those of another stage's result."""


@dataclass(frozen=True, slots=True)
class Records:
    """The `rows` that the RDD of an input has: all columns of records, hidden ones too.

    If they have all `fields` of JSON in place of `value`, the plan of `parser` reads these.
    `fields_of_json` are the names of all fields, also where only Spark can read them. Rows of
    another stage may have its `columns`.
    """

    rows: pa.Schema
    fields: pa.Schema | None = None
    parser: Callable[[], CompiledPlan] | None = None
    columns: StructType | None = None
    fields_of_json: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Analyzed:
    """The analyzed plan of a query, without aliases.

    `rdd_id` is the id of the RDD of `input`. `records` has the rows of all inputs, by the ids of
    their RDDs. `tables` maps the RDD ids of tables that follow topics
    to their names; `versioned` lists the ids of the tables with a history. `inputs` maps the RDD
    ids of single inputs to their names, if there are several inputs.
    """

    plan: Any
    rdd_id: int
    records: Mapping[int, Records]
    tables: Mapping[int, str]
    versioned: Sequence[int]
    inputs: Mapping[int, str]


class QuerySession:
    """The Spark session in which one query is analyzed, planned and run."""

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
        """The types of all columns of records, with values that are not parsed."""
        self._records: dict[str, Records] = {"": Records(self.records)}
        self._parsers: dict[str, CompiledPlan] = {}
        self._results: dict[str, StructType] = {}
        self._code = code
        self._session = session
        settings = _SETTINGS | _SETTINGS_OF_SQL if spec.query else _SETTINGS
        for name, value in settings.items():
            self._session.conf.set(name, value)
        jvm: Any = session._jvm
        self.jvm = jvm
        self.make = Catalyst(jvm)
        self.java: Any = self._session._jsparkSession
        self._activate: Callable[[Any], None] = jvm.SparkSession.setActiveSession
        forbid_functions(self.java, jvm, is_text=bool(spec.query))
        self._entered = threading.local()
        self._tag = f"query {uuid.uuid4().hex}"
        self.plans = QueryPlans(session, self._tag)

    def _begin_planning(self) -> None:
        """Have this thread plan with the query's session, and with the settings of its plans."""
        self._activate(self.java)
        if hasattr(self._entered, "done"):
            return
        self._entered.done = True
        context = self._session.sparkContext
        # Shown in Spark's UI for the jobs of the query.
        context.setJobDescription(" ".join((self.spec.query or self.spec.function).split()))
        for name, value in _SETTINGS.items():
            context.setLocalProperty(name, value)
        # A tag and not a group, since the caller may have a group for its jobs.
        context.addJobTag(self._tag)
        context.setInterruptOnCancel(True)

    def cancel(self) -> None:
        """End a call from another thread."""
        self.plans.cancel()

    def analyzed(self, rows: Rows) -> Analyzed:
        """Return the analyzed plan of the query over these tables.

        Raises `QueryError` if the query reads anything else, or joins tables that follow topics in
        a way that needs more rows than a batch has.
        """
        self._begin_planning()
        for name, stage in self.spec.stages.items():
            if name not in self._results:
                self._results[name] = self._result_of(stage, rows)
        for name in (*self.spec.tables, *self.spec.global_tables):
            table = rows.frames[name]
            plan = table._jdf.queryExecution().analyzed()
            F.broadcast(self.frame(plan)).createOrReplaceTempView(name)
        tables = {self._view_of_topic(name): name for name in self.spec.topic_tables}
        inputs: dict[int, str] = {}
        records: dict[int, Records] = {}
        if len(self.spec.inputs) > 1:
            for name in self.spec.inputs:
                rdd_id, records[rdd_id], _ = self._view_of_records(name)
                inputs[rdd_id] = name
        names = (INPUT, *self.spec.inputs[: 0 if inputs else 1])
        rdd_id, records[rdd_id], view = self._view_of_records(*names)
        analyzed = self._analyze(view)
        rules = self.make.catalyst
        analyzed = rules.optimizer.InlineCTE(True, False, False).apply(analyzed)
        analyzed = rules.analysis.EliminateSubqueryAliases.apply(analyzed)
        if self.spec.query:
            require_given(analyzed)
            require_known_options(analyzed, self.make)
            require_plain_types(self.frame(analyzed))
        versioned = [id_ for id_, name in tables.items() if name in self.spec.versioned_tables]
        return Analyzed(analyzed, rdd_id, records, tables, versioned, inputs)

    @property
    def types_of_stages(self) -> dict[str, str]:
        """The types of the inputs that are stages, as JSON; known after `analyzed`."""
        return {name: result.json() for name, result in self._results.items()}

    def result(self, rows: Rows) -> StructType:
        """Return the types of the query's result; `rows` has the tables that Spark reads."""
        self._begin_planning()
        with_globals = GlobalRows(self._session, self.spec).with_others(rows)
        return self.frame(self.analyzed(with_globals).plan).schema

    def _result_of(self, stage: QuerySpec, rows: Rows) -> StructType:
        """Return the types of the result of a stage, which runs elsewhere."""
        inner = QuerySession(new_session(self._session), stage, self._code)
        try:
            return inner.result(rows)
        finally:
            self._begin_planning()

    def _view_of_records(self, *names: str) -> tuple[int, Records, DataFrame]:
        """Make a view of records under each of these names.

        Returns the id and the rows of its RDD, and the view.
        """
        result = next((self._results[name] for name in names if name in self._results), None)
        schema: Schema = self.spec.schemas.get(names[0], self.spec.schema)
        given = None
        if result is not None:
            schema = fields_of(result)
            given = self.columns_of_stage(result) if self.spec.takes_columns else None
        records = given or self._records_of(schema)
        raw = self.empty(records.rows)
        hidden = len(self.records) - len(COLUMNS)
        if records.columns is not None:
            view = restored(raw, records.columns)
        else:
            view = raw.drop(*raw.columns[-hidden:]) if hidden else raw
        if result is not None:
            is_parsed = records.fields is not None or records.columns is not None
            view = seen(view, None if is_parsed else self._value(schema), result)
        elif schema and records.fields is None:
            view = self._parsed(view, schema)
        require_plain_types(view)
        for name in names:
            view.createOrReplaceTempView(f"`{name}`")
        return _rdd_id(raw), records, view

    def columns_of_stage(self, result: StructType) -> Records | None:
        """Return the rows of a stage in the same task: its columns, and those of its records.

        They have the types that they would have in JSON. `None` if they must be JSON.
        """
        fields = fields_of(result)
        if fields.fields:
            parsed = self._parsed(self.empty(self.records), fields)
            fields = StructType(parsed.schema.fields[1 : len(fields) + 1])
        rows = rows_of_columns(fields, self.records)
        return None if rows is None else Records(rows, columns=fields)

    def _records_of(self, schema: Schema) -> Records:
        """Return the rows of an input whose JSON has this schema, if any."""
        name = _name_of(schema)
        if name not in self._records:
            parsed = self._parsed(self.empty(self.records), schema)
            fields = _fields_of(parsed, self.records.names)
            names = tuple(parsed.columns[1 : len(parsed.columns) - len(self.records) + 2])
            if fields is None:
                self._records[name] = Records(self.records, fields_of_json=names)
            else:
                key, _, *others = self.records
                rows = pa.schema([key, *fields, *others])
                parser = partial(self._parser, schema)
                self._records[name] = Records(rows, fields, parser, fields_of_json=names)
        return self._records[name]

    def _value(self, schema: Schema) -> Column:
        """Return the JSON values of records as structs. Those of a stage may have any number."""
        options = {"mode": "FAILFAST", **({} if self.spec.is_lenient else STRICT)}
        if not isinstance(schema, str):
            options = {**READING}
        return F.from_json(F.col("value").cast("string"), schema, options).alias("value")

    def _parsed(self, raw: DataFrame, schema: Schema) -> DataFrame:
        """Return the records with the fields of their JSON values as columns, after the key."""
        others = [name for name in raw.columns if name not in ("key", "value")]
        records = raw.select("key", self._value(schema), *others)
        records = records.select("key", "value.*", *others)
        require_plain_types(records)
        may_be_infinite = self.spec.is_lenient or not isinstance(schema, str)
        return records if may_be_infinite else finite_fields(records, len(others))

    def _parser(self, schema: Schema) -> CompiledPlan:
        """Return the plan that reads the values of records, but for those of late ones."""
        name = _name_of(schema)
        if name not in self._parsers:
            self._begin_planning()
            raw = self.empty(self.records)
            rdd_id = _rdd_id(raw)
            if OPEN_FROM in raw.columns:
                is_late = F.col(OPEN_FROM) > F.col("timestamp")
                raw = raw.withColumn("value", F.when(is_late, None).otherwise(F.col("value")))
            frame = self._parsed(raw, schema)
            self._parsers[name] = self.compiled(frame, {rdd_id: (INPUT, self.records)})
        return self._parsers[name]

    def _view_of_topic(self, name: str) -> int:
        """Make the view of a table that follows a topic, and return the id of its RDD."""
        raw = self.empty(self._rows_of_topic(name))
        rows = raw.select(*lookup_schema(self.spec.format).names)
        schema = self.spec.topic_tables[name]
        table = parsed_table(rows, schema) if schema else rows
        require_plain_types(table)
        table.hint("shuffle_hash").createOrReplaceTempView(name)
        return _rdd_id(raw)

    def leaves(self, query: Analyzed) -> dict[int, tuple[str, pa.Schema]]:
        """Return the leaves that get new rows with each batch; see `compiled`."""
        tables = {id_: (name, self._rows_of_topic(name)) for id_, name in query.tables.items()}
        return {query.rdd_id: (INPUT, query.records[query.rdd_id].rows), **tables}

    def _rows_of_topic(self, name: str) -> pa.Schema:
        """Return the types of the rows of a table that follows a topic."""
        is_versioned = name in self.spec.versioned_tables
        return (versions_schema if is_versioned else lookup_schema)(self.spec.format)

    def is_reusable(self, analyzed: Any) -> bool:
        """Whether a plan always gives the same output for the same records."""
        pattern = self.make.catalyst.trees.TreePattern.CURRENT_LIKE()
        return (
            analyzed.deterministic()
            and not analyzed.containsPattern(pattern)
            and _TIME_IN_WORDS.search(self.spec.query) is None
        )

    def require_reusable(self, analyzed: Any, what: str) -> None:
        """Raise `QueryError` if a plan may give another output for the same records.

        `what` is what would depend on when a batch runs.
        """
        if not self.is_reusable(analyzed):
            raise QueryError(
                f"random numbers and the current time would make {what} depend on when a batch "
                "ran: use timestamp, or compute them in a processor before or after this one. For "
                "the time at which records are read, the source says timestamp: wall_clock"
            )

    def frame(self, plan: Any) -> DataFrame:
        """Return an analyzed plan as a DataFrame."""
        dataset = self.make.spark.classic.Dataset
        return DataFrame(dataset.ofRows(self.java, plan), self._session)

    def empty(self, schema: pa.Schema) -> DataFrame:
        """Return a DataFrame of these types without rows."""
        types = from_arrow_schema(schema).json()
        nothing = self._session.sparkContext._jsc.emptyRDD().rdd()
        return DataFrame(self.java.applySchemaToPythonRDD(nothing, types), self._session)

    def compiled(
        self,
        frame: DataFrame,
        leaves: Mapping[int, tuple[str, pa.Schema]],
        others: Sequence[str] = (),
        records: Records | None = None,
        plan: Any = None,
    ) -> CompiledPlan:
        """Return a physical plan, with the types of `frame`, that can be run on many tables.

        `plan` is by default what Spark's planner makes of `frame`. `leaves` maps the ids of the
        RDDs that it scans to their names and types; one is `INPUT`, with these `records` if it is
        an input of the query. Raises `QueryError` for an operator above that one which neither
        works row by row nor is of the kinds `others`.
        """
        plan = frame._jdf.queryExecution().sparkPlan() if plan is None else plan
        rdd_id, rows = next((id_, rows) for id_, (name, rows) in leaves.items() if name == INPUT)
        # A table without columns would have no rows.
        places = used_places(plan, rdd_id, self.make) or [rows.names.index("timestamp")]
        used = [rows.names[place] for place in places]
        if records is not None:
            # For each batch, Spark reads all columns of a leaf, also those that are null.
            leaves = {**leaves, rdd_id: (INPUT, pa.schema([rows.field(name) for name in used]))}
        made = {id_: self._leaf(rows) for id_, (_, rows) in leaves.items()}
        ids = {leaves[id_][0]: int(leaf.id()) for id_, leaf in made.items()}
        input_id = ids.pop(INPUT)
        kept = {} if records is None else {rdd_id: places}
        joins = HASH_JOIN in self.make.questions.names(plan)
        node = self._prepared(self._scanning(plan, made, kept, joins=joins), input_id, others)
        require_by_record(node, input_id, others)
        require_planned_joins(node, input_id, ids.values())
        partitions = [leaf.partitions()[0] for leaf in made.values()]
        results = self.plans.add(frame._jdf.toArrowBatchRdd(node), partitions)
        schema = None if records is None else records.fields
        fields = [] if schema is None else [name for name in used if name in schema.names]
        return CompiledPlan(
            tuple(dict.fromkeys("value" if name in fields else name for name in used)),
            dict(leaves.values()),
            to_arrow_schema(frame.schema, timezone="UTC"),
            results,
            JsonFields(schema, tuple(fields)) if schema is not None and fields else None,
            None if records is None else records.parser,
        )

    def scan(self, rdd: Any, like: Any, columns: Sequence[Any]) -> Any:
        """Return a scan of an RDD of one partition that gives these attributes.

        It has the name and the order of another one. Since all rows are in one partition, Spark
        plans no shuffle for what needs those of a group.
        """
        one = scala_object(self.make.catalyst.plans.physical, "SinglePartition")
        return self._scan(rdd, like, columns, one)

    def _scan(self, rdd: Any, like: Any, columns: Sequence[Any], partitioning: Any) -> Any:
        others = partitioning, like.outputOrdering(), like.stream()
        scanned = self.make.seq(columns)
        return self.make.spark.execution.RDDScanExec(scanned, rdd, like.name(), *others)

    def _scanning(
        self, node: Any, leaves: Mapping[int, Any], kept: Mapping[int, list[int]], *, joins: bool
    ) -> Any:
        """Return a physical plan that scans these leaves in place of the RDDs with their ids.

        If `kept` has a leaf, that has the columns in these places only. A plan that `joins` leaves
        has nothing else that needs the rows of a group, and a join that is `joined_in_place` has no
        known partitions.
        """
        if kind(node) == "RDDScanExec":
            rdd_id = int(node.rdd().id())
            if rdd_id not in leaves:
                return node
            columns = items(node.output())
            columns = [columns[place] for place in kept.get(rdd_id, range(len(columns)))]
            if joins:
                return self._scan(leaves[rdd_id], node, columns, node.outputPartitioning())
            return self.scan(leaves[rdd_id], node, columns)
        children = items(node.children())
        if not children:
            return node
        is_of_leaves = kind(node) == HASH_JOIN and all(
            any(reads_input(child, rdd_id) for rdd_id in leaves) for child in children
        )
        made = [self._scanning(child, leaves, kept, joins=joins) for child in children]
        node = self.make.with_children(node, made)
        return joined_in_place(node, self.make) if is_of_leaves else node

    def _prepared(self, plan: Any, input_id: int, others: Sequence[str]) -> Any:
        """Return a physical plan as Spark would execute it: with broadcasts and compiled code."""
        made = self.make.spark.execution.QueryExecution.prepareExecutedPlan(self.java, plan)
        return in_one_partition(made, input_id, self.make) if "WindowExec" in others else made

    def _leaf(self, schema: pa.Schema) -> Any:
        """Return an RDD with one partition of no rows, which may be replaced."""
        nothing = pa.RecordBatch.from_pylist([], schema=schema).serialize().to_pybytes()
        batches = scala_object(self.jvm.scala.collection, "Iterator").single(nothing)
        types = from_arrow_schema(schema).json()
        frame = self.jvm.PythonSQLUtils.toDataFrame(batches, types, self.java)
        execution = frame.queryExecution()
        # Spark's lambda functions take an item as `ColumnarArray` has it, which fails for a null in
        # Arrow's memory. So rows with such values are copied into Spark's own format first.
        if any(has_items(field.type) for field in schema):
            return execution.toRdd()
        return execution.analyzed().rdd()

    def _analyze(self, records: DataFrame) -> Any:
        """Return the analyzed plan of the user's query, without executing any of it."""
        spec = self.spec
        if spec.query:
            state = self.java.sessionState()
            parsed = _parse(state.sqlParser(), as_spark_reads(spec.query))
            mode = self.make.spark.execution.CommandExecutionMode.SKIP()
            execution = state.executePlan(parsed, mode)
            execution.assertAnalyzed()
            return execution.analyzed()
        function = self._code.load(spec.function)
        try:
            frame = function(records, **spec.config)
        except BaseException as raised:
            error = as_exception(raised)
            place = place_of(error)
            failed, at = f"{spec.function} fails: ", f" ({place})" if place else ""
            raise QueryError(
                f"{failed}{type(error).__name__}: {one_line(error)}{at}",
                shown=f"{failed}{without_values(error)}{at}",
            ) from error
        if not isinstance(frame, DataFrame):
            raise QueryError(
                f"{spec.function} returns a {type(frame).__name__}: it must return a DataFrame"
            )
        return frame._jdf.queryExecution().analyzed()


def _parse(parser: Any, query: str) -> Any:
    """Return the plan of a query; the grammar's rule for queries lets no command through.

    Analysis would run the string in EXECUTE IMMEDIATE, and a script consists of statements.
    """
    text = without_end(query)
    try:
        parser.parsePlan(text)  # gives a better error for text that is not a statement at all
    except ParseException as error:
        if _PATTERNS_OF_ROWS.search(text):
            raise QueryError(
                "MATCH_RECOGNIZE is not possible, as Spark does not know patterns of rows: a class "
                'with a store finds them, see "Find a pattern of events" in the recipes'
            ) from error
        require_one_statement(text)
        raise
    try:
        return parser.parseQuery(text)
    except ParseException as error:
        raise QueryError("only a SELECT that reads input can be run") from error


def _name_of(schema: Schema) -> str:
    """Return text that is the same for the same schema; "" for one without fields."""
    if isinstance(schema, str):
        return schema
    return str(schema.json()) if schema.fields else ""


def _fields_of(view: DataFrame, taken: Sequence[str]) -> pa.Schema | None:
    """Return the fields of JSON among the columns of records, if Arrow can read all of them."""
    fields = view.schema.fields[1 : len(view.columns) - len(taken) + 2]
    names = {name.casefold() for name in (*taken, *(field.name for field in fields))}
    is_clear = len(names) == len(taken) + len(fields)
    if not is_clear or any(each.dataType.simpleString() not in TYPES for each in fields):
        return None
    return to_arrow_schema(StructType(fields), timezone="UTC")


def _rdd_id(raw: DataFrame) -> int:
    return int(raw._jdf.queryExecution().analyzed().rdd().id())
