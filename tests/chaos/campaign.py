"""Rounds of faults against clusters, and their results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from random import Random

from tests.chaos.catalog import Fault, SkippedError
from tests.chaos.growth import Curve, Growth
from tests.chaos.host_rig import HOST_BROKERS, HostRig
from tests.chaos.numbered_results import Tally
from tests.chaos.pipelines import Kind
from tests.chaos.report import Row, StandstillWatch, Timeline
from tests.chaos.rig import Rig
from tests.chaos.verify import explain, read_again, source_problems, verify

MAX_REST_S = 1.5


class Campaign:
    """Runs rounds of faults. A failed round ends its cluster; the next round gets a new one.

    If `broken` names a sabotage, the campaign ends as soon as a result, a state or an offset is
    wrong.
    `kind` determines the processors of the pipeline. `on_hosts` gives each part of the cluster a
    host of its own. Brokers get the `broker_settings`.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        timeline: Timeline,
        broken: str = "",
        kind: Kind = Kind.PLAIN,
        records_per_s: int | None = None,
        *,
        on_hosts: bool = False,
        broker_settings: Mapping[str, str | int] = {},
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.problems: list[str] = []
        """The problems that the final checks of the clusters found."""
        self.results = 0
        """How many results were checked."""
        self.curves: list[Curve] = []
        """What the processes used that lived long."""
        self.sabotage_signs = 0
        """How often a sabotage has left its sign."""
        self._broken = broken
        self._kind = kind
        self._records_per_s = records_per_s
        self._on_hosts = on_hosts
        self._broker_settings = broker_settings
        self._folder = folder
        self._seed = seed
        self._say = timeline.say
        self._standstill = StandstillWatch(timeline)
        self._clusters = 0

    @property
    def is_clean(self) -> bool:
        """Whether all rounds and all final checks passed."""
        return not self.problems and all(row.is_clean for row in self.rows.values())

    @property
    def found_wrong_data(self) -> bool:
        """Whether a result, a state or an offset was wrong."""
        return bool(self.problems) or any(row.has_wrong_data for row in self.rows.values())

    def rounds(self, faults: Sequence[Fault], count: int) -> None:
        """Play each fault `count` times; faults for the same kind of cluster share one."""
        self.rows = {fault.name: Row(fault.name) for fault in faults}
        for _, group in groupby(sorted(faults, key=self._cluster_of), key=self._cluster_of):
            self._play(self._plan(list(group), count))

    def _plan(self, faults: Sequence[Fault], count: int) -> Iterator[Fault]:
        for fault in faults:
            for _ in range(count):
                if self._broken and self.found_wrong_data:
                    return
                yield fault

    def soak(self, faults: Sequence[Fault], seconds: float) -> None:
        """Play faults at random until the time is up, against one cluster.

        It has one broker, or is on hosts.
        """
        usual = (HOST_BROKERS if self._on_hosts else 1, False)
        faults = [fault for fault in faults if self._cluster_of(fault) == usual]
        self.rows = {fault.name: Row(fault.name) for fault in faults}
        deadline_s = time.monotonic() + seconds

        def plan() -> Iterator[Fault]:
            random = Random(f"{self._seed} plan")
            while time.monotonic() < deadline_s:
                yield random.choice(faults)

        self._play(plan())

    def _play(self, plan: Iterator[Fault]) -> None:
        fault = next(plan, None)
        while fault is not None:
            self._clusters += 1
            folder = self._folder / f"cluster_{self._clusters}"
            brokers, _ = self._cluster_of(fault)
            self._say(f"cluster {self._clusters} starts: {brokers} broker(s), in {folder}")
            is_whole = True
            random = Random(f"{self._seed} cluster {self._clusters}")
            rig = (HostRig if self._on_hosts else Rig)(
                folder,
                random,
                self._say,
                brokers,
                self._broken,
                self._kind,
                self._records_per_s,
                self._broker_settings,
            )
            growth = Growth(rig.sessions)
            with rig.open(), growth.watched():
                while fault is not None and is_whole:
                    is_whole = self._round(rig, fault)
                    fault = next(plan, None)
                if is_whole:
                    self._look_again(rig)
                self.curves += growth.curves()
                self.results += rig.ledger.results
                self.sabotage_signs += rig.sabotage_signs()

    def _round(self, rig: Rig, fault: Fault) -> bool:
        """Play one round; return whether the cluster can be used for another one."""
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
        # The draws of a round depend on the seed alone, not on how earlier rounds went.
        rig.random = Random(f"{self._seed} {fault.name} {row.rounds + 1}")
        self._say(f"{fault.name} #{row.rounds + 1}")
        failures = len(row.failures)
        try:
            rig.wait_until_whole()
            rig.load.resume()
            time.sleep(rig.random.uniform(0.2, MAX_REST_S))
            fault.act(rig)
            rig.wait_until_whole()
            rig.require_alive()
        except SkippedError as error:
            row.skipped = str(error)
            self._say(f"skipped: {error}")
            return rig.settle().is_clean
        except Exception as error:
            row.failures.append(f"{type(error).__name__}: {error}".partition("\n")[0])
            self._say(f"FAILED: {traceback.format_exc()}")
        # Check even if something else has failed: results may be wrong as well.
        found = self._settled(rig, row)
        row.add(found, rig.seconds)
        is_whole = found.is_clean and len(row.failures) == failures
        if not is_whole:
            self._say(f"WRONG: {found}")
            self._explain(rig)
        return is_whole

    def _settled(self, rig: Rig, row: Row) -> Tally:
        try:
            found = rig.settle()
            if not found.is_clean and (again := read_again(rig)).is_clean:
                row.failures.append(f"the reader has {found}, but the sink has all of it, once")
                return again
            if not found.is_clean and (problems := source_problems(rig)):
                row.failures.append(f"the writer is to blame, not the engine: {problems[0]}")
                return Tally()
            return found
        except Exception as error:
            row.failures.append(f"not compared: {type(error).__name__}: {error}")
            return Tally()

    def _explain(self, rig: Rig) -> None:
        try:
            rig.dump_stacks()
            for line in explain(rig):
                self._say(line)
        except Exception as error:
            self._say(f"nothing more can be told: {type(error).__name__}: {error}")

    def _look_again(self, rig: Rig) -> None:
        try:
            problems = verify(rig)
        except Exception as error:
            problems = [f"the last look failed: {type(error).__name__}: {error}"]
        self.problems += problems
        for problem in problems:
            self._say(f"WRONG: {problem}")
        self._say(
            f"last look: {rig.ledger.results} results, states, offsets and transactions "
            f"{'compared: all right' if not problems else 'are not all right'}"
        )

    def _cluster_of(self, fault: Fault) -> tuple[int, bool]:
        """Return what kind of cluster a fault needs."""
        return HOST_BROKERS if self._on_hosts else fault.brokers, fault.edits
