"""Computes column expressions for a batch with the kernels of Arrow, as `expression_rows` does.

Where a kernel and Python differ, Python computes the function or, if that is not enough, the whole
expression for the batch. So errors are always raised by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.streams.dsl.columns import Column, StructColumn, UnsuitableError, column_of
from kafka_pipeline.streams.dsl.expression_kernels import KERNELS
from kafka_pipeline.streams.dsl.expression_rows import UnfitError, scalar_function
from kafka_pipeline.streams.dsl.expressions import (
    Call,
    Case,
    Coalesce,
    Expression,
    Field,
    Key,
    Literal,
    Logic,
    Struct,
    Timestamp,
    Value,
)
from kafka_pipeline.streams.record import Batch


@dataclass(slots=True)
class BatchColumns:
    """The columns of a batch."""

    batch: Batch
    _keys: Column | None = field(default=None, init=False)
    _values: Column | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def keys(self) -> Column:
        if self._keys is None:
            self._keys = column_of(self.batch.keys)
        return self._keys

    @property
    def values(self) -> Column:
        if self._values is None:
            self._values = column_of(self.batch.values)
        return self._values


def compute(expression: Expression, batch: BatchColumns) -> Column:
    """Return what an expression is for each record of a batch.

    Raises `UnsuitableError` if only the way by row can tell.
    """
    try:
        return _compute(expression, batch)
    except (pa.ArrowException, UnfitError, ArithmeticError, ValueError) as error:
        raise UnsuitableError from error


def compute_condition(condition: Expression, batch: BatchColumns) -> list[bool | None]:
    """Return what a condition is for each record of a batch; see `compute`."""
    return _bools(compute(condition, batch)).to_pylist()  # type: ignore[no-any-return]


def _compute(expression: Expression, batch: BatchColumns) -> Column:
    match expression:
        case Key():
            return batch.keys
        case Value():
            return batch.values
        case Timestamp():
            return column_of(batch.batch.timestamps)
        case Literal(constant):
            return Column([constant] * len(batch))
        case Field(parent, name):
            return _compute(parent, batch).field(name)
        case Call("is_null", (argument,), _):
            return Column(_compute(argument, batch).is_null)
        case Call("is_not_null", (argument,), _):
            return Column([not each for each in _compute(argument, batch).is_null])
        case Call():
            return _call(expression, batch)
        case Logic(operator, left, right):
            kernel = pc.and_kleene if operator == "&" else pc.or_kleene
            return Column(array=kernel(*(_bools(_compute(each, batch)) for each in (left, right))))
        case Coalesce(choices):
            return _coalesce([_compute(each, batch) for each in choices])
        case Case(branches, default):
            found = _compute(default, batch)
            for condition, then in reversed(branches):
                holds = _bools(_compute(condition, batch)).fill_null(False)
                found = _choose(holds, _compute(then, batch), found)
            return found
        case Struct(fields):
            return StructColumn({name: _compute(each, batch) for name, each in fields}, len(batch))
    raise AssertionError(f"a kind of expression that is not known: {expression!r}")


def _call(call: Call, batch: BatchColumns) -> Column:
    operands: list[pa.Array | pa.Scalar] = []
    columns: list[Column] = []
    for argument in call.arguments:
        if isinstance(argument, Literal) and len(call.arguments) > 1:
            columns.append(Column([argument.constant] * len(batch)))
            operands.append(_scalar(argument.constant))
            continue
        column = _compute(argument, batch)
        columns.append(column)
        operands.append(column.array)
    if any(operand.type == pa.null() for operand in operands):
        return Column(array=pa.nulls(len(batch)))
    kernel = KERNELS.get(call.function)
    if kernel is not None and not all(isinstance(each, pa.Scalar) for each in operands):
        found = kernel(*call.parameters, *operands)
        if found is not None:
            return Column(array=found)
    return _by_row(scalar_function(call), columns)


def _by_row(function: Callable[..., Any], columns: Sequence[Column]) -> Column:
    """Return what a function of values makes of columns, null where one of them is null."""
    if len(columns) == 1:
        items = columns[0].to_pylist()
        return Column([None if item is None else function(item) for item in items])
    pairs = zip(*(column.to_pylist() for column in columns), strict=True)
    return Column([None if a is None or b is None else function(a, b) for a, b in pairs])


def _scalar(constant: Any) -> pa.Scalar:
    return Column([constant]).array[0]


def _bools(column: Column) -> pa.Array:
    """Return a column of bools, with nulls."""
    array = column.array
    if array.type == pa.null():
        return array.cast(pa.bool_())
    if array.type != pa.bool_():
        raise UnsuitableError
    return array


def _coalesce(columns: Sequence[Column]) -> Column:
    found = columns[-1]
    for column in reversed(columns[:-1]):
        is_null = pa.array(column.is_null, pa.bool_())
        found = _choose(is_null, found, column)
    return found


def _choose(holds: pa.Array, then: Column, otherwise: Column) -> Column:
    """Return the items of `then` where a column of bools is true, and of the other elsewhere."""
    try:
        a, b = then.array, otherwise.array
        a = a.cast(b.type) if a.type == pa.null() else a
        b = b.cast(a.type) if b.type == pa.null() else b
        if a.type == b.type:
            return Column(array=pc.if_else(holds, a, b))
    except UnsuitableError:
        pass
    triples = zip(holds.to_pylist(), then.to_pylist(), otherwise.to_pylist(), strict=True)
    return Column([item if chosen else other for chosen, item, other in triples])
