"""What TLS costs: `python -m benchmarks.secured`.

The same backlog is worked off on a broker without protection, and on one that clients reach by
SASL_SSL, in turns. Each round begins with the other one, since the first run of a round may be
slower. Both brokers run all the time; the one whose turn it is not does nothing. Compare the
medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median

from benchmarks.bench import Bench, bench
from benchmarks.peers.this_engine import ThisEngine
from benchmarks.records import rows
from benchmarks.runs import throughput

BACKLOG = "backlog"
PLAIN, SECURED = "plaintext", "SASL_SSL"
FIGURES = ("records_per_s", "cpu_s_per_million", "broker_cpu_s_per_million")


def measure(
    stages: Sequence[tuple[str, Bench]], kind: str, rounds: int, warm_up: int, records: int
) -> dict[str, list[dict[str, float]]]:
    """Print the figures of each run, and return them by the name of the stage."""
    for _, stage in stages:
        stage.make_topic(BACKLOG)
        stage.write(BACKLOG, rows(0, warm_up + records))
    runs: dict[str, list[dict[str, float]]] = {name: [] for name, _ in stages}
    print(f"{'listener':<12}" + "".join(f"{figure:>27}" for figure in FIGURES), flush=True)
    for number in range(rounds):
        for name, stage in stages if number % 2 == 0 else reversed(stages):
            contender = ThisEngine(name, kafka=stage.kafka)
            found = throughput.measure(stage, contender, kind, BACKLOG, warm_up, records)
            runs[name].append(found)
            print(f"{name:<12}" + "".join(f"{found[figure]:>27,.3f}" for figure in FIGURES))
    return runs


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print the medians and their ratios."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.secured", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workload", choices=("forward", "count"), default="forward")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--warm-up-records", type=int, default=2_000_000)
    arguments = parser.parse_args(words)
    with bench() as plain, bench(is_secure=True) as secured:
        runs = measure(
            [(PLAIN, plain), (SECURED, secured)],
            arguments.workload,
            arguments.rounds,
            arguments.warm_up_records,
            arguments.records,
        )
    for figure in FIGURES:
        before, after = (median(run[figure] for run in runs[name]) for name in (PLAIN, SECURED))
        print(
            f"median {figure}: {before:,.3f} {PLAIN}, {after:,.3f} {SECURED}; {after / before:.3f}"
        )


if __name__ == "__main__":
    main()
