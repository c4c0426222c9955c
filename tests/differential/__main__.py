"""Runs random topologies through Kafka Streams and through ours, and compares the outputs.

python -m tests.differential                             # 40 topologies, 100 inputs for each
python -m tests.differential --topology 7 --seed 13      # one case
python -m tests.differential --operator sliding          # only topologies of some operators
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kafka_pipeline.common.errors import UnavailableError
from tests.differential.comparison import Case, compare
from tests.differential.generator import draw_inputs, draw_topology
from tests.differential.java_side import JavaSide, compile_runner
from tests.differential.operators import OPERATORS
from tests.differential.shrinking import shrink
from tests.differential.topologies import Input, Topology


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--topologies", type=int, default=40, metavar="N", help="how many")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="inputs for each")
    parser.add_argument("--topology", type=int, metavar="N", help="only the topology of this seed")
    parser.add_argument("--seed", type=int, metavar="N", help="only the inputs of this seed")
    parser.add_argument(
        "--operator",
        action="append",
        choices=tuple(OPERATORS),
        metavar="NAME",
        help=f"draw only these: {', '.join(OPERATORS)}",
    )
    parser.add_argument(
        "--on-disk", action="store_true", help="Kafka Streams always has its stores in RocksDB"
    )
    parser.add_argument("--keep-going", action="store_true", help="do not end at a difference")
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for; 0 if nothing differs, 1 if something does."""
    arguments = _arguments()
    # Otherwise SIGTERM, such as that of `timeout`, would leave the state in memory behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="differential_") as folder:
        try:
            runner = compile_runner(Path(folder, "classes"))
        except UnavailableError as error:
            print(error, file=sys.stderr)
            return 2
        with JavaSide(runner, Path(folder), on_disk=arguments.on_disk) as java:
            return _Campaign(java, arguments).run()


class _Campaign:
    """Topologies, one after the other."""

    def __init__(self, java: JavaSide, arguments: argparse.Namespace) -> None:
        self._java = java
        self._arguments = arguments
        self._cases = 0
        self._records = 0
        self._failed = 0
        self._steps = Counter[str]()

    def run(self) -> int:
        """Compare all, print what differs, and return the exit code."""
        arguments = self._arguments
        started = time.monotonic()
        seeds = range(arguments.topologies)
        if arguments.topology is not None:
            seeds = range(arguments.topology, arguments.topology + 1)
        differing = 0
        for seed in seeds:
            differing += not self._is_equal(seed)
            if differing and not arguments.keep_going:
                break
        steps = ", ".join(f"{count} {op}" for op, count in self._steps.most_common())
        print(
            f"{self._cases} runs of {len(seeds)} topologies in {time.monotonic() - started:.0f} s: "
            f"{self._records} records compared, {self._failed} runs failed on both sides, "
            f"{differing} topologies differ\nsteps: {steps}"
        )
        return 1 if differing else 0

    def _is_equal(self, seed: int) -> bool:
        arguments = self._arguments
        topology = draw_topology(seed, arguments.operator or tuple(OPERATORS))
        seeds = range(arguments.seeds)
        if arguments.seed is not None:
            seeds = range(arguments.seed, arguments.seed + 1)
        self._steps.update(step.op for step in topology.steps)
        runs = [draw_inputs(topology, each) for each in seeds]
        for each, case in zip(seeds, compare(self._java, topology, runs), strict=True):
            self._cases += 1
            self._records += sum(map(len, case.theirs.outputs.values()))
            self._failed += case.theirs.error is not None
            if case.kind:
                small = shrink(case, self._compared)
                print(f"{small}\n\nreplay: {self._command(seed, each)}\n", flush=True)
                return False
        return True

    def _compared(self, topology: Topology, inputs: Sequence[Input]) -> Case:
        return next(compare(self._java, topology, [inputs]))

    def _command(self, topology: int, seed: int) -> str:
        operators = "".join(f" --operator {name}" for name in self._arguments.operator or ())
        return f"python -m tests.differential --topology {topology} --seed {seed}{operators}"


if __name__ == "__main__":
    sys.exit(main())
