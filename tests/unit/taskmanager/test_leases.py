"""PipelineThreads are pinged as long as the main loop runs, however long its turns take."""

from __future__ import annotations

from queue import SimpleQueue

from kafka_pipeline.taskmanager.leases import LIFE_BEATS, LeaseKeeper

INTERVAL_MS = 1000


class Loop:
    """A main loop with a clock, and the pings that were sent for it."""

    def __init__(self) -> None:
        self.now_s = 500.0
        self.pings = 0
        self.keeper = LeaseKeeper(INTERVAL_MS, self._ping, lambda: self.now_s)

    def _ping(self) -> None:
        self.pings += 1

    def renew_after(self, seconds: float) -> bool:
        """Let time pass; return whether a ping is sent then."""
        self.now_s += seconds
        before = self.pings
        self.keeper.renew()
        return self.pings > before


def test_turn_shorter_than_the_lease_costs_no_ping() -> None:
    loop = Loop()
    loop.keeper.show_life()
    assert [loop.renew_after(0.5) for _ in range(2 * LIFE_BEATS)] == [True] * 2 * LIFE_BEATS


def test_loop_that_hangs_for_longer_than_the_lease_is_not_spoken_for() -> None:
    loop = Loop()
    loop.keeper.show_life()
    assert loop.renew_after(LIFE_BEATS)
    assert not loop.renew_after(0.001)
    assert not loop.renew_after(600)


def test_loop_that_comes_back_is_spoken_for_again() -> None:
    loop = Loop()
    assert not loop.renew_after(60)
    loop.keeper.show_life()
    assert loop.renew_after(0.5)


def test_process_that_was_stopped_does_not_ping_before_its_loop_goes_on() -> None:
    """SIGCONT wakes all threads, and the one that pings may be the first to run."""
    loop = Loop()
    loop.keeper.show_life()
    assert not loop.renew_after(3600)


def test_pings_come_from_a_thread_of_their_own_until_the_end() -> None:
    pings: SimpleQueue[None] = SimpleQueue()
    keeper = LeaseKeeper(10, lambda: pings.put(None), lambda: 0.0)
    keeper.start()
    for _ in range(3):
        pings.get(timeout=30)
    keeper.stop()
    keeper._thread.join(30)
    assert not keeper._thread.is_alive()
