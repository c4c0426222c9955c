"""Makes small cases of large ones that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.differential.comparison import Case
from tests.differential.topologies import Input, Topology

MOST_TRIALS = 600


def shrink(case: Case, compared: Callable[[Topology, Sequence[Input]], Case]) -> Case:
    """Return a case, as small as it gets in `MOST_TRIALS` trials, that differs in the same way."""
    trials = 0

    def first_that_differs(candidates: Iterator[tuple[Topology, Sequence[Input]]]) -> Case | None:
        nonlocal trials
        for topology, inputs in candidates:
            if trials >= MOST_TRIALS:
                return None
            if not topology.steps:
                continue
            trials += 1
            tried = compared(topology, inputs)
            if tried.kind == case.kind:
                return tried
        return None

    while (smaller := first_that_differs(_smaller(case))) is not None:
        case = smaller
    return case


def _smaller(case: Case) -> Iterator[tuple[Topology, Sequence[Input]]]:
    """Yield what to try next: fewer inputs, the largest parts first, then fewer steps."""
    inputs = case.inputs
    size = len(inputs)
    while size:
        for start in range(0, len(inputs), size):
            yield case.topology, [*inputs[:start], *inputs[start + size :]]
        size //= 2
    for topology in case.topology.smaller():
        topics = topology.sources
        yield topology, [i for i in inputs if "advance_ms" in i or i["topic"] in topics]
