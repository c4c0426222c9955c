"""Which columns of queries a schema or a table expects, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafka_pipeline.common.config.yaml_positions import Located
from kafka_pipeline.common.pipelines.specs import ProcessorSpec, SparkSpec
from kafka_pipeline.common.spark_types import columns_of_result
from kafka_pipeline.streams.pipeline.kinds.entry import PipelineFile
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.schema_uses import place_of_key
from kafka_pipeline.streams.pipeline.topics import Made

Results = Callable[[Sequence[ProcessorSpec]], Sequence[str]]
"""Returns the type of each query's results, as JSON of Spark, or "" if that is not known."""

ResultColumns = Mapping[str, Mapping[str, Any]]
"""The columns of results by the ids of processors, as `columns_of_result` returns them."""


def result_columns(made: Mapping[str, Made], results: Results) -> ResultColumns:
    """Return the columns of queries whose results somebody expects; asks only about these."""
    asked = {
        processor.id: processor.spec
        for _, processor in made.values()
        # Of another format, a result has one column, whose text may be JSON of any form.
        if isinstance(processor.spec, SparkSpec)
        and processor.spec.format == "json"
        and any(
            name in processor.spec.schema_sinks or _has_columns(made, name) for name in processor.to
        )
    }
    if not asked:
        return {}
    types = results([*asked.values()])
    return {id_: columns_of_result(type_) for id_, type_ in zip(asked, types, strict=True) if type_}


def table_problems(
    file: PipelineFile, made: Mapping[str, Made], columns: ResultColumns
) -> Iterator[tuple[Located, str]]:
    """Yield what tables cannot take of the queries in front of them, with its place."""
    for entry, processor in made.values():
        for name in processor.from_:
            if name in columns and _has_columns(made, processor.id):
                kind = kind_of(processor.spec)
                for wrong in kind.misfits(processor.spec, columns[name]):
                    at = place_of_key(file, entry, ("schema",))
                    yield at, f'"{entry.id}": the results of "{name}" do not fit: {wrong}'


def _has_columns(made: Mapping[str, Made], name: str) -> bool:
    return name in made and kind_of(made[name][1].spec).has_columns
