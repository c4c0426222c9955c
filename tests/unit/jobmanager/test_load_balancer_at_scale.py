"""Up to 50 TaskManagers and 1,000 tasks: balance, and how few tasks one change may move."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.load_balancer import balance
from tests.unit.jobmanager.shares import fewest_moves

MOST_TASKMANAGERS = 50
PIPELINES = st.builds(
    lambda processors, parallelism: [
        TaskId(f"P{n}", partition) for n in range(processors) for partition in range(parallelism)
    ],
    st.integers(1, 10),
    st.integers(1, 100),
)


@dataclass(frozen=True, slots=True)
class Change:
    """Tasks in balance after some joins and leaves; `changer` is not among the stayers."""

    tasks: list[TaskId]
    threads: dict[int, int]
    stayers: set[int]
    changer: int
    joins: bool
    before: dict[TaskId, int]

    @property
    def present(self) -> dict[int, int]:
        """The threads of those who are there after the change."""
        ids = {*self.stayers, self.changer} if self.joins else self.stayers
        return {tm: self.threads[tm] for tm in ids}

    @property
    def share(self) -> int:
        """The tasks that `changer` takes or leaves, by its threads, rounded up."""
        all_threads = sum(self.threads[tm] for tm in (*self.stayers, self.changer))
        return ceil(len(self.tasks) * self.threads[self.changer] / all_threads)


@st.composite
def changes(draw: st.DrawFn, most_threads: int) -> Change:
    """Draw a cluster, who came and went there, and one that joins or leaves now."""
    tasks = draw(PIPELINES)
    some_threads = st.lists(st.integers(1, most_threads), min_size=2, max_size=MOST_TASKMANAGERS)
    threads = dict(enumerate(draw(some_threads)))
    some = st.sets(st.sampled_from(sorted(threads)), min_size=1)
    owners: dict[TaskId, int] = {}
    for ids in draw(st.lists(some, max_size=3)):
        owners = balance(tasks, {tm: threads[tm] for tm in ids}, owners)
    stayers = draw(some.filter(lambda ids: len(ids) < len(threads)))
    changer = draw(st.sampled_from(sorted(set(threads) - stayers)))
    joins = draw(st.booleans())
    present = stayers if joins else {*stayers, changer}
    before = balance(tasks, {tm: threads[tm] for tm in present}, owners)
    return Change(tasks, threads, stayers, changer, joins, before)


def moved_from(tms: set[int], change: Change, after: dict[TaskId, int]) -> set[TaskId]:
    """Return the tasks that do not stay with one of these TaskManagers."""
    return {t for t, owner in change.before.items() if owner in tms and after[t] != owner}


@given(changes(most_threads=1))
def test_change_among_equals_moves_one_share_and_takes_nothing_from_others(change: Change) -> None:
    after = balance(change.tasks, change.present, change.before)

    assert len(moved_from({*change.stayers, change.changer}, change, after)) <= change.share
    if change.joins:
        assert {after[t] for t in moved_from(change.stayers, change, after)} <= {change.changer}
    else:
        assert not moved_from(change.stayers, change, after)


@given(changes(most_threads=8))
def test_change_among_different_moves_what_the_rounding_of_shares_asks_for(change: Change) -> None:
    after = balance(change.tasks, change.present, change.before)

    moved = moved_from(change.stayers, change, after)
    held = Counter(owner for owner in change.before.values() if owner in change.stayers)
    assert len(moved) == fewest_moves(len(change.tasks), change.present, held)
    if change.joins:
        assert len(moved) <= change.share
    else:
        assert all(count == 1 for count in Counter(change.before[t] for t in moved).values())


@given(changes(most_threads=8))
def test_shares_of_a_large_cluster_are_within_one_of_the_proportion(change: Change) -> None:
    counts = Counter(balance(change.tasks, change.present, change.before).values())

    all_threads = sum(change.present.values())
    for tm, threads in change.present.items():
        assert abs(counts[tm] - len(change.tasks) * threads / all_threads) <= 1
