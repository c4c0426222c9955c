"""Rounds of faults against clusters, and what came of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from random import Random

from tests.chaos.catalog import Fault, SkippedError
from tests.chaos.report import Row, StandstillWatch, Timeline
from tests.chaos.rig import Rig
from tests.chaos.verify import busy_tasks, explain, verify

MAX_REST_S = 1.5


class Campaign:
    """Breaks clusters. A round that fails ends its cluster; the next one gets a new one.

    With the name of a sabotage in `broken`, it ends as soon as something is not as it must be.
    `with_query`, one of the processors is a query of Spark SQL.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        timeline: Timeline,
        broken: str = "",
        with_query: bool = False,
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.problems: list[str] = []
        """What the last looks at the clusters found."""
        self.results = 0
        """How many results were compared."""
        self.sabotage_signs = 0
        """How often a sabotage has left its sign."""
        self._broken = broken
        self._with_query = with_query
        self._folder = folder
        self._random = Random(seed)
        self._say = timeline.say
        self._standstill = StandstillWatch(timeline)
        self._clusters = 0

    @property
    def is_clean(self) -> bool:
        """Whether every round, and every last look, came out as it must."""
        return not self.problems and all(row.is_clean for row in self.rows.values())

    def rounds(self, faults: Sequence[Fault], count: int) -> None:
        """Play each fault that many times; faults for the same kind of cluster share one."""
        self.rows = {fault.name: Row(fault.name) for fault in faults}
        for _, group in groupby(sorted(faults, key=_kind), key=_kind):
            self._play(self._plan(list(group), count))

    def _plan(self, faults: Sequence[Fault], count: int) -> Iterator[Fault]:
        for fault in faults:
            for _ in range(count):
                if self._broken and not self.is_clean:
                    return
                yield fault

    def soak(self, faults: Sequence[Fault], seconds: float) -> None:
        """Play faults at random until the time is up, against one cluster with one broker."""
        faults = [fault for fault in faults if _kind(fault) == (1, False)]
        self.rows = {fault.name: Row(fault.name) for fault in faults}
        deadline_s = time.monotonic() + seconds

        def plan() -> Iterator[Fault]:
            while time.monotonic() < deadline_s:
                yield self._random.choice(faults)

        self._play(plan())

    def _play(self, plan: Iterator[Fault]) -> None:
        fault = next(plan, None)
        while fault is not None:
            self._clusters += 1
            folder = self._folder / f"cluster_{self._clusters}"
            brokers, edits = _kind(fault)
            self._say(f"cluster {self._clusters} starts: {brokers} broker(s), in {folder}")
            is_whole = True
            rig = Rig(
                folder, self._random, self._say, brokers, edits, self._broken, self._with_query
            )
            with rig.open():
                while fault is not None and is_whole:
                    is_whole = self._round(rig, fault)
                    fault = next(plan, None)
                if is_whole:
                    self._look_again(rig)
                self.results += rig.ledger.results
                self.sabotage_signs += rig.sabotage_signs()

    def _round(self, rig: Rig, fault: Fault) -> bool:
        """Play one round; return whether the cluster can take another one."""
        row = self.rows[fault.name]
        if row.skipped:
            return True
        still_s = self._standstill.seconds
        try:
            return self._play_round(rig, fault, row)
        finally:
            row.still_s += self._standstill.seconds - still_s

    def _play_round(self, rig: Rig, fault: Fault, row: Row) -> bool:
        rig.seconds = []
        before = rig.ledger.tally(rig.load.numbers)
        self._say(f"{fault.name} #{row.rounds + 1}")
        try:
            rig.wait_until_whole()
            rig.load.resume()
            time.sleep(self._random.uniform(0.2, MAX_REST_S))
            fault.act(rig)
            rig.wait_until_whole()
            rig.require_alive()
            found = rig.settle() - before
        except SkippedError as error:
            row.skipped = str(error)
            self._say(f"skipped: {error}")
            rig.load.pause()
            return True
        except Exception as error:
            row.rounds += 1
            row.failures.append(f"{type(error).__name__}: {error}".partition("\n")[0])
            self._say(f"FAILED: {traceback.format_exc()}")
            rig.dump_stacks()
            for line in busy_tasks(rig):
                self._say(line)
            return False
        row.add(found, rig.seconds)
        if not found.is_clean:
            self._say(f"WRONG: {found}")
            rig.dump_stacks()
            for line in explain(rig):
                self._say(line)
        return found.is_clean

    def _look_again(self, rig: Rig) -> None:
        problems = verify(rig)
        self.problems += problems
        for problem in problems:
            self._say(f"WRONG: {problem}")
        self._say(
            f"last look: {rig.ledger.results} results, states, offsets and transactions "
            f"{'compared: all right' if not problems else 'are not all right'}"
        )


def _kind(fault: Fault) -> tuple[int, bool]:
    return fault.brokers, fault.edits
