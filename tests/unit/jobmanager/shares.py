"""The shares that rounding asks for, computed without the load balancer."""

from __future__ import annotations

from collections.abc import Mapping


def fewest_moves(total: int, threads: Mapping[int, int], held: Mapping[int, int]) -> int:
    """Return how many tasks must leave the TaskManager where they are.

    `total` tasks are shared in proportion to `threads`, each share rounded up or down; `held` has
    how many of them each TaskManager has. Most stay if the shares of those who hold more are
    rounded up.
    """
    all_threads = sum(threads.values())
    floors = {tm: total * count // all_threads for tm, count in threads.items()}
    rounded_up = total - sum(floors.values())
    above = sum(held.get(tm, 0) > floors[tm] for tm in threads)
    stay = sum(min(held.get(tm, 0), floors[tm]) for tm in threads) + min(above, rounded_up)
    return sum(held.get(tm, 0) for tm in threads) - stay
