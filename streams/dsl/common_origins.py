"""Joins of tables that one change may reach from both sides, such as a table with a view of itself.

A change takes one path after the other. When it reaches the join by the first path, the store of
the other side may already hold a change that has not reached the join yet: after a deletion,
neither side would find a partner, and the result would stay forever (KAFKA-6687). So marks tell the
join when a change of a common origin begins and ends, and it forwards one result for all changes
between them.

    table -> begin -> join          the first child of the table
          -> ...   -> left side  -> join
          -> ...   -> right side -> join
          -> end   -> join          the last one
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from kafka_pipeline.streams.dsl.graph import Compiling, Step
from kafka_pipeline.streams.dsl.joining import FromSide

BEGIN, END = 2, 3
"""The marks of records that are no changes, in the place of a side."""


def common_origins(left: Step, right: Step, tables: Collection[Step]) -> tuple[Step, ...]:
    """Return the tables whose changes may reach a step from both of its parents at once.

    The search ends at topics, after which a change is another record. If one common table leads to
    another, only the nearest is returned: the one with a path to a parent that passes no other.
    """
    common = {*_ways_up(left, ())} & {*_ways_up(right, ())} & {*tables}
    nearest = [each for parent in (left, right) for each in _ways_up(parent, common)]
    return tuple(dict.fromkeys(each for each in nearest if each in common))


def _ways_up(step: Step, until: Collection[Step]) -> Iterator[Step]:
    """Yield a step and those before it, up to a topic and to those of `until`, each once."""
    seen = {step}
    waiting = [step]
    while waiting:
        each = waiting.pop()
        yield each
        if each in until or each.operation.begins_group:
            continue
        new = [parent for parent in each.parents if parent not in seen]
        seen.update(new)
        waiting += new


def add_begin(compiler: Compiling, join: Step, origin: Step) -> None:
    """Add the node that marks for a join the beginning of each change of an origin."""
    number = join.operation.common_origins.index(origin)
    _add(compiler, join, origin, BEGIN, number)


def add_ends(compiler: Compiling, join: Step) -> list[str]:
    """Add the nodes that mark the ends for a join; return all nodes with marks for it.

    All steps on the ways to the join must have been compiled.
    """
    origins = join.operation.common_origins
    for number, origin in enumerate(origins):
        _add(compiler, join, origin, END, number)
    return [_name(join, mark, number) for mark in (BEGIN, END) for number in range(len(origins))]


def _add(compiler: Compiling, join: Step, origin: Step, mark: int, number: int) -> None:
    name = _name(join, mark, number)
    compiler.builder.add_processor(name, partial(FromSide, mark), compiler.output(origin))


def _name(join: Step, mark: int, number: int) -> str:
    return f"{join.name}-{'begin' if mark == BEGIN else 'end'}-{number + 1}"
