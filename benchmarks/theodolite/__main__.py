"""The use cases of Theodolite: `python -m benchmarks.theodolite [--uc N]… [--peer kafka-streams]`.

The figure is the highest rate that a job sustains exactly once: the trend of its lag stays flat.
Each rate is tried with a new job. The rates double and are then bisected; contenders take turns.
Before that, the results of a small run are compared with those of a model; if they differ, there is
no rate. Each contender then runs once to warm up the broker.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks import plan
from benchmarks.bench import PARTITIONS, Bench, bench
from benchmarks.command import exit_after, positive, say
from benchmarks.contender import Contender
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.this_engine import ThisEngine
from benchmarks.report import Row, Table, as_text
from benchmarks.theodolite.catalog import MODULES, USE_CASES, UseCase
from benchmarks.theodolite.runs import Settings, check, try_rate
from benchmarks.theodolite.search import Search
from kafka_pipeline.admin.signals import Interrupted
from kafka_pipeline.common.errors import PipelineError

KAFKA_STREAMS, NONE = "kafka-streams", "none"


@dataclass(frozen=True, slots=True)
class _Searching:
    """The search of a contender, and the figures of the rates that it sustains."""

    contender: Contender
    search: Search
    sustained: dict[int, Mapping[str, float]] = field(default_factory=dict)

    @property
    def row(self) -> Row:
        found = self.sustained.get(self.search.found)
        return Row(self.contender.title, [] if found is None else [found])


@dataclass(slots=True)
class Theodolite:
    """A broker, and what was found on it so far."""

    stage: Bench
    settings: Settings
    failures: list[str] = field(default_factory=list)

    def require_right(self, use_case: UseCase, contender: Contender) -> bool:
        """Return whether the results of a use case are right; a failure is printed and kept."""
        said = f"{use_case.name}, {contender.title}"
        try:
            check(self.stage, contender, use_case, self.settings.threads)
        except PipelineError as error:
            self._fail(f"{said}: {error}")
            return False
        say(f"{said}: the results are those of the model")
        return True

    def warm_up(self, use_case: UseCase, contender: Contender, rate: int) -> None:
        """Try a rate that does not count: the broker's Java would be cold for the first one."""
        with contextlib.suppress(PipelineError):
            try_rate(self.stage, contender, use_case, rate, self.settings)

    def capacities(
        self, use_case: UseCase, contenders: Sequence[Contender], first: int, precision: float
    ) -> list[Row]:
        """Return the figures of the highest rate that each contender sustains.

        They try rates in turns, so that all meet the same broker: its Java gets faster for minutes.
        """
        searches = [_Searching(contender, Search(first, precision)) for contender in contenders]
        while running := [(each, rate) for each in searches if (rate := each.search.rate)]:
            for each, rate in running:
                self._try(use_case, each, rate)
        return [each.row for each in searches]

    def _try(self, use_case: UseCase, searching: _Searching, rate: int) -> None:
        contender, search = searching.contender, searching.search
        said = f"{use_case.name}, {contender.title}"
        try:
            trial = try_rate(self.stage, contender, use_case, rate, self.settings)
        except PipelineError as error:
            self._fail(f"{said}: {error}")
            search.give_up()
            return
        problem = trial.problem(self.settings.most_trend)
        say(f"{said}, {rate:,} records/s: {problem or 'sustained'}")
        if not problem:
            searching.sustained[rate] = trial.figures
        search.learn(not problem)
        if search.rate is None and not search.found:
            self._fail(f"{said}: no rate is sustained")

    def _fail(self, said: str) -> None:
        self.failures.append(said)
        say(f"FAILED: {said}")


def contenders(peer: str) -> Mapping[str, Sequence[Contender]]:
    """Return the contenders of each use case: this engine, in the DSL and in SQL, and the peer."""
    dsl = ThisEngine(plan.OURS, {each.name: each.pipeline for each in USE_CASES.values()}, MODULES)
    in_sql = {each.name: each.sql for each in USE_CASES.values() if each.sql}
    sql = ThisEngine(f"{plan.OURS}, SQL", in_sql, ())
    peers = [KafkaStreams()] if peer == KAFKA_STREAMS else []
    return {name: [dsl, *[sql] * (name in in_sql), *peers] for name in USE_CASES}


def run(arguments: argparse.Namespace) -> int:
    """Run the use cases, and print their tables; return the exit code: 1 if one failed."""
    by_use_case = contenders(arguments.peer)
    settings = Settings(
        warm_up_s=arguments.warm_up,
        duration_s=arguments.duration,
        most_trend=arguments.max_trend / 100,
        threads=arguments.threads,
    )
    tables: list[Table] = []
    exit_code = 0
    with bench(partitions=arguments.partitions) as stage:
        for contender in {each for found in by_use_case.values() for each in found}:
            contender.prepare(stage.folder)
        theodolite = Theodolite(stage, settings)
        try:
            for use_case in (USE_CASES[f"uc{number}"] for number in arguments.uc):
                found = by_use_case[use_case.name]
                right = [each for each in found if theodolite.require_right(use_case, each)]
                if arguments.check:
                    continue
                for contender in right:
                    theodolite.warm_up(use_case, contender, arguments.rate)
                rows = theodolite.capacities(
                    use_case, right, arguments.rate, arguments.precision / 100
                )
                if rows:
                    tables.append(Table(f"{use_case.name}, {use_case.title}", "capacity", rows))
        except Interrupted as interrupt:
            exit_code = 128 + interrupt.number
    print("\n\n".join(as_text(table) for table in tables))
    return exit_code or (1 if theodolite.failures else 0)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.theodolite", description=__doc__.partition("\n")[0]
    )
    numbers = [int(name.removeprefix("uc")) for name in USE_CASES]
    parser.add_argument(
        "--uc",
        action="append",
        type=int,
        choices=numbers,
        help="may be given several times; all by default",
    )
    parser.add_argument("--peer", choices=(KAFKA_STREAMS, NONE), default=KAFKA_STREAMS)
    parser.add_argument(
        "--check", action="store_true", help="only compare results, and measure nothing"
    )
    parser.add_argument("--rate", type=positive, default=1_000, help="the first one, in records/s")
    parser.add_argument("--warm-up", type=positive, default=60, metavar="S")
    parser.add_argument("--duration", type=positive, default=120, metavar="S")
    parser.add_argument(
        "--max-trend",
        type=float,
        default=2.0,
        metavar="PERCENT",
        help="how fast the lag may grow, of the rate",
    )
    parser.add_argument(
        "--precision",
        type=float,
        default=10.0,
        metavar="PERCENT",
        help="how close the next rate that fails must be",
    )
    parser.add_argument("--partitions", type=positive, default=PARTITIONS)
    parser.add_argument("--threads", type=positive, default=2, help="of each job")
    arguments = parser.parse_args(words)
    arguments.uc = arguments.uc or numbers
    return arguments


def main() -> None:
    """Run, and exit with 1 if a run failed."""
    arguments = parse()
    exit_after(lambda: run(arguments))


if __name__ == "__main__":
    main()
