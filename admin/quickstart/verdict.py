"""Checks that the pipeline's output is exactly what it should be; knows nothing of the engine.

The expected output is derived from the input alone:

- The n-th flight to an airport with a known delay must give the record (airport, n), once, and in
  this order.
- A flight without a known delay must be a dead letter that says why.
- A cancelled flight must give nothing at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

REASON_HEADER = "__streams.errors.message"
_EXAMPLES = 3

Outcome = tuple[bytes, bytes | None]
"""An airport, and the delay at arrival: empty if unknown, `None` if the flight was cancelled."""


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record that was read back from a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected output: each airport's highest count, and its number of dead letters."""

    counts: Counter[bytes]
    dead_letters: Counter[bytes]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures, and each kind of mistake with its first examples; none if all is right."""

    flights: int
    outputs: int
    dead_letters: int
    problems: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether there are no mistakes."""
        return not self.problems


def expect(flights: Iterable[Outcome]) -> Expected:
    """Return the expected output for the flights."""
    counts: Counter[bytes] = Counter()
    dead_letters: Counter[bytes] = Counter()
    for airport, delay in flights:
        if delay is not None:
            (counts if delay else dead_letters)[airport] += 1
    return Expected(counts, dead_letters)


def judge(
    flights: Sequence[Outcome], outputs: Sequence[OutRecord], dead_letters: Sequence[OutRecord]
) -> Verdict:
    """Compare the records of the sink and the dead-letter topic with the expected ones.

    In both, the records of each partition are in the partition's order.
    """
    expected = expect(flights)
    mistakes = _Mistakes()
    if not expected.counts:
        mistakes.add("flights with a known delay", "there must be some", 0)
    _judge_outputs(expected.counts, outputs, mistakes)
    _judge_dead_letters(expected.dead_letters, dead_letters, mistakes)
    return Verdict(len(flights), len(outputs), len(dead_letters), mistakes.as_problems())


class _Mistakes:
    """Collects mistakes by kind, so that thousands of one kind make one line."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, example: str, count: int = 1) -> None:
        self._counts[kind] += count
        examples = self._examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(example)

    def as_problems(self) -> tuple[str, ...]:
        return tuple(
            f"{kind}: {count:,} ({'; '.join(self._examples[kind])})"
            for kind, count in self._counts.items()
        )


def _judge_outputs(
    expected: Counter[bytes], outputs: Sequence[OutRecord], mistakes: _Mistakes
) -> None:
    last: Counter[bytes] = Counter()
    seen: dict[bytes, set[int]] = {}
    homes: dict[bytes, int] = {}
    for record in outputs:
        key = record.key
        if key is None or key not in expected:
            mistakes.add("outputs for keys that are not airports of the input", f"key {key!r}")
            continue
        name = key.decode()
        if homes.setdefault(key, record.partition) != record.partition:
            mistakes.add("outputs of one airport in two partitions", name)
        count = _as_count(record.value)
        if count is None or count > expected[key]:
            mistakes.add(
                "outputs that are not a count of their airport", f"{name}: {record.value!r}"
            )
            continue
        counts = seen.setdefault(key, set())
        if count in counts:
            mistakes.add("outputs that came twice", f"{name}: {count}")
            continue
        counts.add(count)
        if count < last[key]:
            mistakes.add("outputs out of order", f"{name}: {count} after {last[key]}")
        last[key] = count
    for key, size in expected.items():
        missing = size - len(seen.get(key, ()))
        if missing:
            mistakes.add("outputs that are missing", f"{key.decode()}: {missing:,}", missing)


def _judge_dead_letters(
    expected: Counter[bytes], dead_letters: Sequence[OutRecord], mistakes: _Mistakes
) -> None:
    found: Counter[bytes] = Counter()
    for record in dead_letters:
        key = record.key
        if key is None or key not in expected or record.value != b"":
            example = f"{key!r}: {record.value!r}"
            mistakes.add("dead letters that are not a flight with an unknown delay", example)
            continue
        found[key] += 1
        if not dict(record.headers).get(REASON_HEADER):
            mistakes.add("dead letters without a reason", key.decode())
    for key, size in expected.items():
        difference = found[key] - size
        if difference > 0:
            example = f"{key.decode()}: {difference:,}"
            mistakes.add("dead letters that came twice", example, difference)
        elif difference < 0:
            example = f"{key.decode()}: {-difference:,}"
            mistakes.add("dead letters that are missing", example, -difference)


def _as_count(value: bytes | None) -> int | None:
    """Return the value of a canonical decimal number; None for anything else."""
    if value is None or not value.isdigit() or value.startswith(b"0"):
        return None
    return int(value)
