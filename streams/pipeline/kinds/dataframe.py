"""Python functions of DataFrames that Spark runs: `type: dataframe`."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.code.user_code import CODE_PATTERN
from kafka_pipeline.common.config.durations import spoken
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Text
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.specs import DataFrameSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.group_keys import (
    GROUP_BY,
    GROUP_KEYS,
    grouping_of_function,
)
from kafka_pipeline.streams.pipeline.kinds.kind import (
    ARGUMENTS,
    MAX_PROCESS_TIME,
    MAX_TASK_IDLE,
    Means,
    read_arguments,
    read_reference,
    require_allowed,
)
from kafka_pipeline.streams.pipeline.kinds.spark import (
    FORMAT,
    LENIENT,
    OUT_VALUE,
    SCHEMA,
    Spark,
    query_of,
    read_written,
)
from kafka_pipeline.streams.pipeline.kinds.tables import TABLES, read_tables
from kafka_pipeline.streams.sql.spec import QuerySpec

_FUNCTION = Text(
    name="function",
    doc="a function of the DataFrame of records, as `package.module:function`",
    about="package.module:function",
    required=True,
    pattern=CODE_PATTERN,
)


class DataFrame(Spark[DataFrameSpec]):
    """`type: dataframe`."""

    spec = DataFrameSpec
    doc = "a Python function of Spark's DataFrame"
    own_keys = (
        _FUNCTION,
        FORMAT,
        SCHEMA,
        LENIENT,
        OUT_VALUE,
        TABLES,
        GROUP_BY,
        *GROUP_KEYS,
        MAX_TASK_IDLE,
        MAX_PROCESS_TIME,
    )
    config = ARGUMENTS

    def read(self, fields: Fields, problems: Problems) -> DataFrameSpec:
        written = read_written(fields, problems)
        tables = read_tables(fields, problems)
        return DataFrameSpec(
            code=read_reference(fields, _FUNCTION, problems),
            config=read_arguments(fields.pairs(ARGUMENTS), problems),
            grouping=grouping_of_function(fields, problems),
            format=written.format,
            schema=written.schema,
            lenient=written.lenient,
            value=written.value,
            out_value=written.out_value,
            tables=tables.by_spark,
            topic_tables=tables.of_topics,
            max_task_idle_ms=fields.number(MAX_TASK_IDLE),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
        )

    def check_code(
        self,
        entry: Entry,
        spec: DataFrameSpec,
        file: PipelineFile,
        means: Means,
        problems: Problems,
    ) -> None:
        if spec.code:
            require_allowed(spec.code, entry, means.config, problems)
        super().check_code(entry, spec, file, means, problems)

    def rows_of_groups(self, spec: DataFrameSpec) -> str:
        """See `Spark`: only Spark knows the columns."""
        match spec.grouping and spec.grouping.window:
            case WindowSpec(size_ms=size_ms):
                return f"a row for each group and window of {spoken(size_ms)}"
            case SessionSpec(gap_ms=gap_ms):
                return f"a row for each group and session with a gap of {spoken(gap_ms)}"
        return "a row for each group"

    def query(self, spec: DataFrameSpec) -> QuerySpec:
        return replace(query_of(spec), function=spec.code, config=spec.config)
