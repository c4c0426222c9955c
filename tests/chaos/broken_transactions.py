"""`kill -9` of a TaskManager at each step of a transaction."""

from __future__ import annotations

import time
from pathlib import Path

from tests.chaos.catalog import fault
from tests.chaos.rig import Rig, eventually

REACH_TIMEOUT_S = 30.0
_POLL_S = 0.002


def wait_for(sign: Path) -> None:
    """Wait until a task has passed the fault point that creates this sign."""
    eventually(sign.exists, REACH_TIMEOUT_S, f"no task came by {sign.stem}", _POLL_S)


def kill_at(rig: Rig, point: str, what: str = "stop", pause_s: float = 0) -> None:
    """Kill a TaskManager that a fault point has frozen, or will in less than `pause_s`."""
    victim = rig.some_task_manager()
    sign = rig.set_fault(victim, point, what)
    wait_for(sign)
    time.sleep(pause_s)
    rig.mark()
    rig.kill(victim)
    seconds = rig.wait_for_flow()
    rig.say(f"TaskManager {victim} killed at {point}; all keys flow after {seconds:.1f} s")
    rig.start_task_manager(victim)


@fault("kill-before-produce")
def kill_before_produce(rig: Rig) -> None:
    """kill -9 of a TaskManager, a transaction begun and nothing sent."""
    kill_at(rig, "before-produce")


@fault("kill-before-offsets")
def kill_before_offsets(rig: Rig) -> None:
    """kill -9 of a TaskManager between produce and offsets."""
    kill_at(rig, "before-offsets")


@fault("kill-before-commit")
def kill_before_commit(rig: Rig) -> None:
    """kill -9 of a TaskManager between offsets and commit."""
    kill_at(rig, "before-commit")


@fault("kill-during-commit")
def kill_during_commit(rig: Rig) -> None:
    """kill -9 of a TaskManager while the commit is on its way."""
    delay_ms = rig.random.uniform(0, 4)
    kill_at(rig, "during-commit", f"stop-after {delay_ms:.2f}", pause_s=0.02)


@fault("kill-after-commit")
def kill_after_commit(rig: Rig) -> None:
    """kill -9 of a TaskManager after the commit, before the local store has it."""
    kill_at(rig, "after-commit")
