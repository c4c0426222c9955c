"""Compares what comes of a topology on the two sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tests.differential.java_side import JavaSide
from tests.differential.our_side import is_one_task, run
from tests.differential.outcome import Outcome
from tests.differential.topologies import Input, Topology


@dataclass(frozen=True, slots=True)
class Case:
    """A topology, its inputs, and what comes of them on both sides."""

    topology: Topology
    inputs: Sequence[Input]
    theirs: Outcome
    ours: Outcome
    in_batches: Outcome | None = None
    """Ours if records come in batches, where that must not matter."""

    @property
    def kind(self) -> str:
        """How the sides differ, or ""."""
        failed = (self.theirs.error is not None, self.ours.error is not None)
        if failed == (False, True):
            return "only we fail"
        if failed == (True, False):
            return "only Kafka Streams fails"
        if failed == (True, True):
            # What comes of the input that fails is undone here, and not there.
            return "" if self.theirs.inputs == self.ours.inputs else "failures at other inputs"
        if self.theirs.outputs != self.ours.outputs:
            return "other outputs"
        if self.in_batches is not None and self.in_batches.outputs != self.ours.outputs:
            return "other outputs in batches"
        return ""

    def __str__(self) -> str:
        lines = [f"{self.kind}:", "", str(self.topology), ""]
        lines += [_input_line(given) for given in self.inputs]
        for side, outcome in (("Kafka Streams", self.theirs), ("ours", self.ours)):
            if outcome.error is not None:
                lines.append(f"\n{side} failed after {outcome.inputs} inputs: {outcome.error}")
        shown = self.in_batches or self.ours
        if shown.error is not None and shown is not self.ours:
            lines.append(f"\nours failed in batches: {shown.error}")
        for topic, step in self.topology.sinks.items():
            theirs, ours = self.theirs.outputs.get(topic, ()), shown.outputs.get(topic, ())
            if theirs != ours:
                lines += ["", f"{topic}, from {step.name}:"]
                lines += _side_by_side(theirs, ours)
        return "\n".join(lines)


def _input_line(given: Input) -> str:
    if "advance_ms" in given:
        return f"the wall clock advances by {given['advance_ms']} ms"
    return f"{given['topic']} at {given['ts']}: {given['key']!r} -> {given['value']!r}"


def _side_by_side(theirs: Sequence[object], ours: Sequence[object]) -> Iterator[str]:
    rows = [
        ("Kafka Streams", "ours", " "),
        *(
            (_cell(left), _cell(right), " " if left == right else "*")
            for left, right in zip_longest(theirs, ours)
        ),
    ]
    width = max(len(left) for left, _, _ in rows)
    for left, right, mark in rows:
        yield f"  {mark} {left:{width}}  {right}"


def _cell(written: object) -> str:
    return "nothing" if written is None else str(written)


def compare(java: JavaSide, topology: Topology, runs: Sequence[Sequence[Input]]) -> Iterator[Case]:
    """Yield a case for each run."""
    for inputs, theirs in zip(runs, java.run(topology, runs), strict=True):
        ours, in_batches = run(topology, inputs), None
        if ours.error is None and is_one_task(topology):
            in_batches = run(topology, inputs, in_batches=True)
        yield Case(topology, inputs, theirs, ours, in_batches)
