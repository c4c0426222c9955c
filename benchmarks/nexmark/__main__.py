"""The queries of Nexmark on this engine and its peers: `python -m benchmarks.nexmark [--query Q]…`.

All run exactly once, from JSON on Kafka to JSON on Kafka, with two partitions, two threads and one
broker, in turns. Each run's committed results are compared with what DuckDB says about the same
events, and a run whose results differ has no rate. With `--kill`, only this engine runs, on two
TaskManagers, and one gets SIGKILL in the middle; the results must still be right.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf

from benchmarks import plan
from benchmarks.bench import Bench, bench
from benchmarks.command import exit_after, positive, say
from benchmarks.contender import Contender, Job, Running
from benchmarks.nexmark import flink
from benchmarks.nexmark.catalog import MODULES, QUERIES, Query
from benchmarks.nexmark.flink import FlinkQueries
from benchmarks.nexmark.generator import TOPICS, Settings, chunks, rows, write_side_input
from benchmarks.nexmark.oracle import Oracle, Results
from benchmarks.nexmark.runs import measure, survive
from benchmarks.nexmark.summary import summary
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.this_engine import ThisEngine
from benchmarks.report import Row, Table, as_text
from kafka_pipeline.admin.signals import Interrupted
from kafka_pipeline.common.errors import PipelineError

KAFKA_STREAMS, FLINK, NONE = "kafka-streams", "flink", "none"
PEERS = (KAFKA_STREAMS, FLINK)
_UPDATED_WINDOWS = frozenset({"q7", "q11"})
"""The queries whose windows give updates on Kafka Streams; see NexmarkQueries.java."""


class ThisEnginesQueries(ThisEngine):
    """This engine with the pipelines of the queries."""

    def __init__(self) -> None:
        texts = {query.name: query.pipeline.read_text("utf-8") for query in QUERIES.values()}
        super().__init__(plan.OURS, texts, MODULES)

    def start(self, job: Job) -> Running:
        """Start the job, with the file of q13 next to its config.yaml."""
        write_side_input(job.folder)
        return super().start(job)


@dataclass(frozen=True, slots=True)
class Variant:
    """A contender, and how its results are to be read."""

    contender: Contender
    queries: Set[str]
    """The names of those that it can run."""
    tables: Set[str]
    """Those whose results are a table: the last value of each key counts."""
    open_windows: Set[str] = frozenset()
    """Those that also give the windows of the closing events, which stay open."""

    def results(self, query: Query, oracle: Oracle) -> Results:
        """Return what takes the results of a run."""
        until_ms = oracle.last_ms if query.name in self.open_windows else inf
        return Results(query, query.name in self.tables, until_ms)


def variants(peers: Sequence[str]) -> list[Variant]:
    """Return this engine and the peers."""
    ours = Variant(
        ThisEnginesQueries(),
        QUERIES.keys(),
        {query.name for query in QUERIES.values() if query.is_table},
    )
    known = {
        KAFKA_STREAMS: [
            Variant(
                KafkaStreams(),
                {"q0", "q1", "q2", *_UPDATED_WINDOWS},
                _UPDATED_WINDOWS,
                _UPDATED_WINDOWS,
            )
        ],
        FLINK: [
            Variant(FlinkQueries(is_mini_batch=is_on), flink.QUERIES.keys(), flink.TABLES)
            for is_on in (False, True)
        ],
    }
    return [ours, *(variant for peer in peers for variant in known[peer])]


@dataclass(slots=True)
class Nexmark:
    """The events on a broker, and the measurements so far."""

    stage: Bench
    oracle: Oracle
    figures: defaultdict[tuple[str, str], list[Mapping[str, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    compared: list[str] = field(default_factory=list)
    """The queries that all have run."""
    failures: list[str] = field(default_factory=list)

    def write(self, settings: Settings) -> None:
        """Write the events to their topics, and give them to the oracle."""
        for topic in TOPICS:
            self.stage.make_topic(topic)
        for events in chunks(settings):
            self.oracle.add(events)
            for topic in TOPICS:
                self.stage.write_at(topic, rows(topic, events[topic]))

    def compare(self, query: Query, chosen: Sequence[Variant], rounds: int) -> Table:
        """Run a query on all who know it, in turns; return its table."""
        able = [variant for variant in chosen if query.name in variant.queries]
        for number in range(rounds):
            turn = number % len(able)
            for variant in able[turn:] + able[:turn]:
                self._run(query, variant, number)
        found = [
            Row(title, self.figures[query.name, title])
            for title in (variant.contender.title for variant in able)
        ]
        self.compared.append(query.name)
        return Table(f"{query.name}, {query.title}", "throughput", found)

    def conclusion(self, chosen: Sequence[Variant]) -> str:
        """Return a table of all queries that were compared, and a line for each failure."""
        known = {variant.contender.title: variant.queries for variant in chosen}
        tables = [summary(self.compared, known, self.figures)] if self.compared else []
        failures = (f"FAILED: {failure.splitlines()[0]}" for failure in self.failures)
        return "\n\n".join([*tables, *failures])

    def kill(self, query: Query, ours: Variant) -> None:
        """Run a query on this engine, and kill one of two TaskManagers."""
        try:
            results = ours.results(query, self.oracle)
            share = survive(self.stage, ours.contender, results, self.oracle)
        except PipelineError as error:
            self._fail(f"{query.name} with a kill: {error}")
        else:
            print(f"{query.name}: right, after kill -9 at {share:.0%} of the events", flush=True)

    def _run(self, query: Query, variant: Variant, number: int) -> None:
        title = variant.contender.title
        said = f"round {number + 1}, {query.name}, {title}"
        try:
            results = variant.results(query, self.oracle)
            figures = measure(self.stage, variant.contender, results, self.oracle)
        except PipelineError as error:
            self._fail(f"{said}: {error}")
            return
        self.figures[query.name, title].append(figures)
        say(
            f"{said}: {figures['records_per_s']:,.0f} events/s, "
            f"{figures['cpu_s_per_million']:.2f} CPU s per million"
        )

    def _fail(self, said: str) -> None:
        self.failures.append(said)
        say(f"FAILED: {said}")


def run(arguments: argparse.Namespace) -> int:
    """Run the queries, and print the tables; return the exit code: 1 if a run failed."""
    chosen = variants([] if NONE in arguments.peer or arguments.kill else arguments.peer)
    settings = Settings(events=arguments.events, seed=arguments.seed, disorder=arguments.disorder)
    exit_code = 0
    with bench() as stage:
        for variant in chosen:
            variant.contender.prepare(stage.folder)
        nexmark = Nexmark(stage, Oracle(stage.folder / "events.duckdb"))
        try:
            nexmark.write(settings)
            for query in (QUERIES[name] for name in arguments.query):
                if arguments.kill:
                    nexmark.kill(query, chosen[0])
                else:
                    table = nexmark.compare(query, chosen, arguments.rounds)
                    print(f"{as_text(table)}\n", flush=True)
        except Interrupted as interrupt:
            exit_code = 128 + interrupt.number
        finally:
            nexmark.oracle.close()
            print(nexmark.conclusion(chosen))
    return exit_code or (1 if nexmark.failures else 0)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark", description=__doc__.partition("\n")[0]
    )
    several = "may be given several times; all by default"
    parser.add_argument("--query", action="append", choices=QUERIES, help=several)
    parser.add_argument(
        "--peer", action="append", choices=(*PEERS, NONE), help=f"{several}, `none` for none"
    )
    parser.add_argument("--events", type=positive, default=2_000_000)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the events")
    parser.add_argument(
        "--disorder",
        type=positive,
        default=1,
        metavar="N",
        help="events arrive out of order within groups of so many, as 1000",
    )
    parser.add_argument(
        "--kill", action="store_true", help="kill -9 one of two TaskManagers, and measure nothing"
    )
    arguments = parser.parse_args(words)
    if arguments.kill and set(arguments.peer or ()) - {NONE}:
        parser.error("--kill: only this engine is killed; leave out --peer")
    arguments.peer = arguments.peer or list(PEERS)
    arguments.query = arguments.query or list(QUERIES)
    unordered = [name for name in arguments.query if QUERIES[name].needs_order]
    if arguments.disorder > 1 and unordered:
        parser.error(
            f"--disorder: {', '.join(unordered)} look auctions up, which must have arrived before "
            "their bids; name other queries"
        )
    return arguments


def main() -> None:
    """Run, and exit with 1 if a run failed."""
    arguments = parse()
    exit_after(lambda: run(arguments))


if __name__ == "__main__":
    main()
