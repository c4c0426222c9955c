"""Keeps the functions of a query from Java, files, logs and the network."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.file_options import FUNCTION_OPTIONS, unknown_option
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.spec import QueryError

CALLS_JAVA = ("reflect", "java_method", "try_reflect")
"""Functions by which a query could call any Java method."""

OF_FILES = ("from_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "schema_of_xml")
"""Functions that read a schema from any file or URL, or load a class.

Spark calls `schema_of_xml` while it analyzes `from_xml`, before its options can be checked.
"""

TABLE_FUNCTIONS = ("python_worker_logs",)
"""Functions whose rows belong to other queries."""

_FORMATS_OF_FUNCTIONS = {
    "JsonToStructs": "json",
    "StructsToJson": "json",
    "SchemaOfJson": "json",
    "CsvToStructs": "csv",
    "StructsToCsv": "csv",
    "SchemaOfCsv": "csv",
    "XmlToStructs": "xml",
    "StructsToXml": "xml",
}


def forbid_functions(java: Any, jvm: Any, *, is_text: bool) -> None:
    """Remove the functions that reach Java, files, logs or the network from a Spark session.

    Code of `type: dataframe` keeps those that only the text of a query must not call. The tests
    list all functions of this Spark in `reviewed_functions.txt`, and fail for a new one.
    """
    place = [jvm.scala.Option.apply(name) for name in ("builtin", "system")]
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    state = java.sessionState()
    functions, table_functions = state.functionRegistry(), state.tableFunctionRegistry()
    for name in (*CALLS_JAVA, *(OF_FILES if is_text else ())):
        functions.dropFunction(identifier(name, *place))
    for name in TABLE_FUNCTIONS if is_text else ():
        table_functions.dropFunction(identifier(name, *place))


def require_known_options(plan: Any, make: Catalyst) -> None:
    """Raise `QueryError` if a function in an analyzed plan has an option that is not known.

    `rowValidationXSDPath` of `from_xml` would be a file.
    """
    for each in (plan, *items(plan.subqueriesAll())):
        for name, expression in make.questions.found_in(each, _FORMATS_OF_FUNCTIONS):
            _require_known(expression, _FORMATS_OF_FUNCTIONS[name])


def _require_known(expression: Any, format_: str) -> None:
    names = expression.options().keySet().toSeq()
    given = {str(names.apply(index)): "" for index in range(names.size())}
    option = unknown_option(given, FUNCTION_OPTIONS[format_])
    if option is not None:
        raise QueryError(
            f'{expression.prettyName()} takes no option "{option}" in a query, as some of those '
            "that Spark knows read files or load classes"
        )
