"""Whatever class of exception a function raises, its record is at fault, and no other is lost.

`StopIteration` ends what `map` goes through, a class may have a `__str__` that raises, and an
exception with a length of 0 is false.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pipeline import Record, Serde, Stream, StreamsBuilder, serdes, windows
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import builder

Function = Callable[[str], str]
Records = Stream[str, str]

BAD = "bad"
BATCH = [Record(f"k{number}", BAD if number == 7 else "good", number) for number in range(20)]
FEW = BATCH[6:9]
"""So few that they are processed one by one."""


class NamelessError(Exception):
    """Has no words."""

    def __str__(self) -> str:
        return str(self.args[0])


class NoneAtAllError(Exception):
    """Is false, as a collection of errors that is empty."""

    def __len__(self) -> int:
        return 0


KINDS = {
    "next without a default": lambda: next(iter(())),
    "no words": lambda: _raise(NamelessError()),
    "false": lambda: _raise(NoneAtAllError("x")),
}


def _raise(error: Exception) -> str:
    raise error


STEPS: dict[str, Callable[[Records, Function], Records]] = {
    "map_values": lambda records, f: records.map_values(f),
    "filter": lambda records, f: records.filter(lambda key, value: bool(f(value))),
    "filter_not": lambda records, f: records.filter_not(lambda key, value: not f(value)),
    "map": lambda records, f: records.map(lambda key, value: (key, f(value))),
    "select_key": lambda records, f: records.select_key(lambda key, value: f(value)),
    "flat_map": lambda records, f: records.flat_map(lambda key, value: [(key, f(value))]),
    "flat_map_values": lambda records, f: records.flat_map_values(lambda value: [f(value)]),
    "peek": lambda records, f: records.peek(lambda key, value: f(value)),
    "split": lambda records, f: records.split({"All": lambda key, value: bool(f(value))})["All"],
    "reduce": lambda records, f: (
        records.select_key(lambda key, value: "k")
        .group_by_key()
        .reduce(lambda former, value: f(value))
        .to_stream()
    ),
    "tumbling": lambda records, f: (
        records.group_by_key()
        .windowed_by(windows.tumbling(50, grace_ms=0))
        .aggregate(str, lambda key, value, found: f(value))
        .to_stream()
        .map(lambda windowed, value: (windowed.key, value))
    ),
    "hopping": lambda records, f: (
        records.group_by_key()
        .windowed_by(windows.hopping(50, advance_ms=25, grace_ms=0))
        .aggregate(str, lambda key, value, found: f(value))
        .to_stream()
        .map(lambda windowed, value: (windowed.key, value))
    ),
    "values of a table": lambda records, f: records.to_table().map_values(f).to_stream(),
    "filter of a table": lambda records, f: (
        records.to_table().filter(lambda key, value: bool(f(value))).to_stream()
    ),
    "join of tables": lambda records, f: (
        records.to_table()
        .join(records.map_values(str).to_table(), lambda left, right: f(left))
        .to_stream()
    ),
    "join with a table": lambda records, f: records.join(
        records.to_table().map_values(f), lambda left, right: right
    ),
    "foreign key": lambda records, f: (
        records.to_table()
        .join(
            records.map_values(str).to_table(),
            lambda left, right: right,
            foreign_key=lambda value: f(value),
        )
        .to_stream()
    ),
}


def topology(step: Callable[[Records, Function], Records], function: Function) -> StreamsBuilder:
    """Return a topology with one step whose function raises for a value that is `BAD`."""
    built = builder()
    step(built.stream("in"), function).to("out")
    return built


def failing(kind: Callable[[], str]) -> Function:
    return lambda value: kind() if value == BAD else value


def result(built: StreamsBuilder, batch: list[Record[str, str]]) -> tuple[bool, list[bytes | None]]:
    """Return whether the topology fails, and what it writes before."""
    with TopologyTestDriver(built) as driver:
        has_failed = False
        try:
            driver.create_input_topic("in", serdes.string, serdes.string).pipe_batch(batch)
        except Exception:
            has_failed = True
        found = driver.create_output_topic("out").read_records()
        return has_failed, [record.key for record in found]


@pytest.mark.parametrize("batch", [BATCH, FEW], ids=["batch", "one by one"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_function_fails_alike_whatever_it_raises(
    step: Callable[[Records, Function], Records],
    kind: Callable[[], str],
    batch: list[Record[str, str]],
) -> None:
    expected = result(topology(step, failing(lambda: _raise(LookupError()))), batch)
    assert expected[0]
    assert result(topology(step, failing(kind)), batch) == expected


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("is_written", [True, False], ids=["serialize", "deserialize"])
def test_a_serde_fails_alike_whatever_it_raises(kind: Callable[[], str], is_written: bool) -> None:
    def fails_with(raising: Callable[[], str]) -> StreamsBuilder:
        fails = failing(raising)
        write = Serde("mine", lambda text: fails(text).encode(), bytes.decode)
        read = Serde("mine", str.encode, lambda data: fails(data.decode()))
        built = builder(value_serde=serdes.string if is_written else read)
        built.stream("in").to("out", value_serde=write if is_written else serdes.string)
        return built

    expected = result(fails_with(lambda: _raise(LookupError())), BATCH)
    assert expected == (True, [b"k%d" % number for number in range(7)])
    assert result(fails_with(kind), BATCH) == expected
