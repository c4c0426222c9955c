"""Makes small cases of large ones that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.random_sql.comparison import Case
from tests.random_sql.inputs import Inputs, Record
from tests.random_sql.queries import Query

MOST_TRIALS = 200


def shrink(case: Case, compared: Callable[[Query, Inputs], Case], most: int = MOST_TRIALS) -> Case:
    """Return a case that is wrong in the same way, as small as it gets in `most` trials.

    Records are left out first: another query must be planned anew, which takes longer.
    """
    trials = 0
    while trials < most:
        for query, inputs in _smaller(case):
            trials += 1
            tried = compared(query, inputs)
            if tried.kind == case.kind:
                case = tried
                break
            if trials >= most:
                return case
        else:
            return case
    return case


def _smaller(case: Case) -> Iterator[tuple[Query, Inputs]]:
    for inputs in _less(case.inputs):
        yield case.query, inputs
    for query in case.query.smaller():
        yield query, case.inputs


def _less(inputs: Inputs) -> Iterator[Inputs]:
    """Yield inputs with fewer records, the largest parts first, then with fewer restarts."""
    records = inputs.records
    size = len(records) // 2
    while size:
        for start in range(0, len(records), size):
            yield _without(inputs, start, start + size)
        size //= 2
    if inputs.restarts:
        yield replace(inputs, restarts=frozenset())


def _without(inputs: Inputs, start: int, end: int) -> Inputs:
    batches: list[tuple[Record, ...]] = []
    restarts, number = set[int](), 0
    for place, batch in enumerate(inputs.batches):
        kept = tuple(
            record for index, record in enumerate(batch, number) if not start <= index < end
        )
        number += len(batch)
        if kept:
            restarts |= {len(batches)} if place in inputs.restarts and batches else set()
            batches.append(kept)
    return replace(inputs, batches=tuple(batches), restarts=frozenset(restarts))
