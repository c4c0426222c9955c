"""Runs random queries here and in Spark over all records at once, and compares the results.

python -m tests.random_sql                            # 60 queries, an input for each
python -m tests.random_sql --queries 600 --seeds 3    # more of them
python -m tests.random_sql --query 7 --seed 2         # one case
python -m tests.random_sql --shape windows --shrink   # one kind of queries; make a small case
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from tests.random_sql.comparison import Case, Comparison, opened
from tests.random_sql.drawing import SHAPES, draw_query
from tests.random_sql.inputs import draw_inputs
from tests.random_sql.shrinking import shrink


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.random_sql",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--queries", type=int, default=60, metavar="N", help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first query")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="inputs for each")
    parser.add_argument("--query", type=int, metavar="N", help="only the query of this seed")
    parser.add_argument("--seed", type=int, metavar="N", help="only the inputs of this seed")
    parser.add_argument(
        "--shape", action="append", choices=tuple(SHAPES), help="draw only queries of these"
    )
    parser.add_argument("--shrink", action="store_true", help="make cases that are wrong small")
    parser.add_argument("--keep-going", action="store_true", help="do not end at a difference")
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for; 0 if nothing is wrong, 1 if something is."""
    with opened() as comparison:
        return _Campaign(comparison, _arguments()).run()


class _Campaign:
    """Queries, one after the other."""

    def __init__(self, comparison: Comparison, arguments: argparse.Namespace) -> None:
        self._comparison, self._arguments = comparison, arguments
        self._shapes = tuple(arguments.shape or SHAPES)
        self._refused = Counter[str]()
        self._unjudged = Counter[str]()
        self._right = self._rows = self._wrong = 0

    def run(self) -> int:
        """Compare all, print what is wrong and what was refused, and return the exit code."""
        arguments = self._arguments
        queries = range(arguments.first, arguments.first + arguments.queries)
        if arguments.query is not None:
            queries = range(arguments.query, arguments.query + 1)
        seeds = range(arguments.seeds)
        if arguments.seed is not None:
            seeds = range(arguments.seed, arguments.seed + 1)
        for number in queries:
            self._one(number, seeds)
            if self._wrong and not arguments.keep_going:
                break
        print(
            f"{self._right} runs are right, with {self._rows} results; {self._wrong} are wrong; "
            f"{self._refused.total()} queries were refused, and Spark ended "
            f"{self._unjudged.total()} with an error"
        )
        for name, messages in (("refused", self._refused), ("Spark", self._unjudged)):
            for message, count in messages.most_common():
                print(f"{name}, {count} times: {message}")
        return 1 if self._wrong else 0

    def _one(self, number: int, seeds: Sequence[int]) -> None:
        query = draw_query(number, self._shapes)
        runs = [draw_inputs(query, seed) for seed in seeds]
        for seed, case in zip(seeds, self._comparison.compare_all(query, runs), strict=True):
            self._rows += case.rows
            if case.kind:
                self._wrong += 1
                self._show(number, seed, case)
            elif case.refused:
                self._refused[case.refused] += 1
            elif case.unjudged:
                self._unjudged[case.unjudged] += 1
            else:
                self._right += 1

    def _show(self, number: int, seed: int, case: Case) -> None:
        if self._arguments.shrink:
            case = shrink(case, self._comparison.compare)
        shapes = "".join(f" --shape {name}" for name in self._arguments.shape or ())
        replay = f"python -m tests.random_sql --query {number} --seed {seed}{shapes}"
        print(f"{case}\n\nreplay: {replay}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
