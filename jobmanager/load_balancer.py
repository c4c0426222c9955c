"""Decides which TaskManager runs which task: by threads, then by current owner, then evenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.ownership import LiveTaskManager, OwnedTask


def balance(
    tasks: Sequence[TaskId],
    threads: Mapping[int, int],
    owners: Mapping[TaskId, int],
    copies: Mapping[TaskId, Collection[int]] = {},
    left: Mapping[TaskId, int] = {},
) -> dict[TaskId, int]:
    """Return the TaskManager of every task.

    `threads` has the number of threads (1..) of each TaskManager that can take tasks. `owners` has
    the TaskManager that runs or last ran each task; tasks and TaskManagers missing there are new.
    `copies` has the TaskManagers with a copy of each task's state. `left` has the TaskManager that
    a task was on until that one was gone. In this order:

    1. each TaskManager gets its share of the tasks, in proportion to its threads, to within one;
    2. as many tasks as possible stay where they are, first of all those that have not `left`
       another one that is back;
    3. tasks that cannot stay go where there is a copy of their state, or back to where they were;
    4. replicas of one processor spread out, then the least loaded TaskManager takes the next task.

    The result is empty if `threads` is.
    """
    if not threads:
        return {}
    kept: dict[int, list[TaskId]] = {tm: [] for tm in threads}
    for task in tasks:
        owner = owners.get(task)
        if owner in kept:
            kept[owner].append(task)
    shares = _shares(len(tasks), threads, {tm: len(held) for tm, held in kept.items()})
    guests = {task for task, tm in left.items() if tm in threads and tm != owners.get(task)}
    placed = {
        task: tm for tm, held in kept.items() for task in _most_spread(held, shares[tm], guests)
    }
    room = _Room(threads, shares, placed)
    # Tasks that have state somewhere go first, before other tasks fill the TaskManagers there.
    for task in sorted(tasks, key=lambda task: not copies.get(task) and task not in guests):
        if task not in placed:
            former = (left[task],) if task in guests else ()
            placed[task] = room.take(task, copies.get(task, ()), former)
    return {task: placed[task] for task in tasks}


class _Room:
    """The room for tasks that TaskManagers have left.

    Of the TaskManagers with room, the best one for a task has the fewest replicas of its processor,
    then the fewest tasks per thread, then the lowest id. Two heaps find it: one, ordered by load,
    has the TaskManagers without a replica of the processor; the other has all others. An entry may
    be out of date, since `take` also chooses TaskManagers without the heaps. But replicas and load
    only grow: an outdated entry comes out too early, and is put back with its current values.
    """

    def __init__(
        self, threads: Mapping[int, int], shares: Mapping[int, int], placed: Mapping[TaskId, int]
    ) -> None:
        self._threads = threads
        self._shares = shares
        self._counts = Counter(placed.values())
        self._replicas = Counter((tm, task.processor) for task, tm in placed.items())
        self._processor = ""
        self._without = [(self._load(tm), tm) for tm in threads if self._has_room(tm)]
        self._with: list[tuple[int, float, int]] = []
        heapify(self._without)

    def take(self, task: TaskId, *near: Collection[int]) -> int:
        """Return the best TaskManager for a task, one of the first group `near` that has room."""
        processor = task.processor
        if processor != self._processor:
            self._processor = processor
            for *_, tm in self._with:
                heappush(self._without, (self._load(tm), tm))
            self._with = []
        open_ = [[tm for tm in each if tm in self._threads and self._has_room(tm)] for each in near]
        nearest = next(filter(None, open_), None)
        tm = min(nearest, key=self._rank) if nearest else self._best()
        self._counts[tm] += 1
        self._replicas[tm, processor] += 1
        return tm

    def _best(self) -> int:
        """Return the best TaskManager of all; its entry stays in the heap, soon out of date."""
        while self._without:
            load, tm = self._without[0]
            if not self._has_room(tm):
                heappop(self._without)
            elif self._replicas[tm, self._processor]:
                heappop(self._without)
                heappush(self._with, self._rank(tm))
            elif load != self._load(tm):
                heapreplace(self._without, (self._load(tm), tm))
            else:
                return tm
        while True:
            rank = self._with[0]
            tm = rank[-1]
            if not self._has_room(tm):
                heappop(self._with)
            elif rank != self._rank(tm):
                heapreplace(self._with, self._rank(tm))
            else:
                return tm

    def _has_room(self, tm: int) -> bool:
        return self._counts[tm] < self._shares[tm]

    def _load(self, tm: int) -> float:
        return self._counts[tm] / self._threads[tm]

    def _rank(self, tm: int) -> tuple[int, float, int]:
        return self._replicas[tm, self._processor], self._load(tm), tm


def place_standbys(
    standbys: Sequence[TaskId],
    threads: Mapping[int, int],
    owners: Mapping[TaskId, int],
    placed: Mapping[TaskId, int],
) -> dict[TaskId, int]:
    """Return the TaskManager of each standby, never one that has its task or another copy of it.

    Standbys for which no TaskManager remains are left out. `threads` and `owners` are as for
    `balance`, `placed` is what it returned. Standbys stay where they are, as long as no TaskManager
    has more than its share in proportion to its threads, rounded up. The result is empty if
    `threads` is.
    """
    if not threads:
        return {}
    all_threads = sum(threads.values())
    room = {tm: -(-len(standbys) * count // all_threads) for tm, count in threads.items()}
    taken = {task: {tm} for task, tm in placed.items()}
    where: dict[TaskId, int] = {}

    def put(standby: TaskId, tm: int) -> None:
        where[standby] = tm
        taken[standby.active].add(tm)
        room[tm] -= 1

    for standby in standbys:
        owner = owners.get(standby, -1)
        if room.get(owner, 0) > 0 and owner not in taken[standby.active]:
            put(standby, owner)
    emptiest = [(-room[tm] / threads[tm], tm) for tm in threads]
    heapify(emptiest)
    # Copies of the largest TaskManager's tasks go first: they cannot use the room there.
    for standby in sorted(standbys, key=lambda standby: -threads[placed[standby.active]]):
        passed = []
        while standby not in where and emptiest:
            _, tm = heappop(emptiest)
            if tm not in taken[standby.active]:
                put(standby, tm)
            passed.append(tm)
        for tm in passed:
            heappush(emptiest, (-room[tm] / threads[tm], tm))
    return {standby: where[standby] for standby in standbys if standby in where}


def _shares(total: int, threads: Mapping[int, int], held: Mapping[int, int]) -> dict[int, int]:
    """Split `total` in proportion to `threads`, rounded so that the fewest tasks must move."""
    all_threads = sum(threads.values())
    shares = {tm: total * count // all_threads for tm, count in threads.items()}
    left = total - sum(shares.values())
    by_need = sorted(
        threads,
        key=lambda tm: (
            -min(held[tm] - shares[tm], 1),
            -(total * threads[tm] % all_threads),
            tm,
        ),
    )
    for tm in by_need[:left]:
        shares[tm] += 1
    return shares


def _most_spread(held: Sequence[TaskId], share: int, guests: Collection[TaskId]) -> list[TaskId]:
    """Choose which of the tasks stay: first one replica of each processor, then a second, …

    `guests` stay last.
    """
    seen: Counter[str] = Counter()
    ranked = []
    for task in sorted(held, key=lambda task: task in guests):
        ranked.append(((task in guests, seen[task.processor]), task))
        seen[task.processor] += 1
    ranked.sort(key=lambda entry: entry[0])
    return [task for _, task in ranked[:share]]


def place(
    tasks: Mapping[TaskId, OwnedTask],
    managers: Mapping[int, LiveTaskManager],
) -> dict[TaskId, int]:
    """Return the TaskManager for each task, and for each standby that has a place."""
    standbys = [task_id for task_id in tasks if task_id.standby]
    threads = {tm_id: manager.threads for tm_id, manager in managers.items()}
    homes = {}
    for task_id, task in tasks.items():
        # A task that waits to be moved stays with its owner if its target is gone.
        is_lost = task.home not in threads and task.owner is not None
        home = task.owner if is_lost else task.home
        if home is not None:
            homes[task_id] = home
    copies: dict[TaskId, list[int]] = {}
    for standby in standbys:
        owner = tasks[standby].owner
        if owner is not None:
            copies.setdefault(standby.active, []).append(owner)
    active = [task_id for task_id in tasks if not task_id.standby]
    left = {task_id: its for task_id in active if (its := tasks[task_id].left) is not None}
    targets = balance(active, threads, homes, copies, left)
    return targets | place_standbys(standbys, threads, homes, targets)
