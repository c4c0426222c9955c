"""Column expressions where the DSL takes functions of a key and a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_pipeline.streams.dsl.expression_rows import RowFunction, predicate, row_function
from kafka_pipeline.streams.dsl.expressions import Expression, reads_timestamp
from kafka_pipeline.streams.dsl.graph import call
from kafka_pipeline.streams.errors import StreamsError, TopologyError

OF_BOTH = "a function of key and value, or a column expression"
OF_VALUE = "a function of the value, or a column expression"

KeyValueFunction = Callable[[Any, Any], Any]


def function_of_both(given: object, verb: str, name: str | None) -> KeyValueFunction:
    """Return a function of key and value, or an expression as one. Raises `TopologyError`."""
    if isinstance(given, Expression):
        return _function(given, row_function(given), verb, name)
    return call(given, verb, OF_BOTH, name)  # type: ignore[no-any-return]


def condition_of_both(
    given: object, verb: str, name: str | None, is_negated: bool = False
) -> KeyValueFunction:
    """Return a condition of key and value; one that is null is false, and negated it is true."""
    if not isinstance(given, Expression):
        return call(given, verb, OF_BOTH, name)  # type: ignore[no-any-return]
    holds = _function(given, predicate(given), verb, name)
    if is_negated:
        return lambda key, value: holds(key, value) is not False
    return lambda key, value: holds(key, value) is True


def mapper_of_value(given: object, verb: str, name: str | None) -> KeyValueFunction:
    """Return a function of the value, or an expression, as a function of key and value."""
    if isinstance(given, Expression):
        return _function(given, row_function(given), verb, name)
    mapper = call(given, verb, OF_VALUE, name)
    return lambda key, value: mapper(value)


def _function(
    expression: Expression, row: RowFunction, verb: str, name: str | None
) -> KeyValueFunction:
    step = f'{verb} "{name}"' if name else verb
    if reads_timestamp(expression):
        raise TopologyError(
            f"{step} has no timestamp of a record for {expression!r}: use timestamp() in filter, "
            "map_values, select_key or aggregate of a stream"
        )

    def run(key: Any, value: Any) -> Any:
        try:
            return row(key, value, None)
        except StreamsError as error:
            raise StreamsError(f"{step}: {error}") from error

    return run
