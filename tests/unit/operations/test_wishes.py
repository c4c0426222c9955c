"""What is asked of processors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.deployment import Stop, Wish
from common.errors import ConfigError
from operations import wishes

BUSY = Wish(version=3, paused=("A",), drains=True, restarts={"A": 1})


def test_paused_processors_stay_paused_when_others_are() -> None:
    assert wishes.paused(BUSY, ["B"]).paused == ("A", "B")


def test_a_processor_that_is_resumed_does_not_end_a_drain() -> None:
    found = wishes.resumed(Wish(version=3, paused=("A", "B"), drains=True), ["B"])
    assert (found.paused, found.drains) == (("A",), True)


def test_all_that_are_resumed_end_a_drain() -> None:
    found = wishes.all_resumed(BUSY, ["A", "B"])
    assert (found.paused, found.drains) == ((), False)


def test_all_that_are_resumed_give_a_savepoint_up_but_no_restore() -> None:
    savepoint = Stop(purpose="savepoint", token="t", by="ada@alpha")
    assert wishes.all_resumed(BUSY.with_stop(savepoint), ["A", "B"]).stop is None
    restore = replace(savepoint, purpose="restore")
    with pytest.raises(ConfigError, match="is restoring the state of this job"):
        wishes.all_resumed(BUSY.with_stop(restore), ["A", "B"])


def test_a_restart_is_counted_for_each_processor() -> None:
    assert wishes.restarted(BUSY, ["A", "B"]).restarts == {"A": 2, "B": 1}


def test_a_drain_pauses_nothing() -> None:
    found = wishes.drained(Wish(version=3), ["A"])
    assert (found.paused, found.drains) == ((), True)
