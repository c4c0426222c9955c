"""The built-in processors: what they emit, however their input is cut into batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    ProcessorContext,
    RecordRejectedError,
)
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import (
    SPECS,
    CountSpec,
    ForwardSpec,
    ProcessorSpec,
    SourceSpec,
    SumSpec,
)
from kafka_pipeline.streams.builtin import count
from kafka_pipeline.streams.builtin.count import COUNTS, CountProcessor
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.builtin.sum import SumProcessor
from kafka_pipeline.streams.pipeline.units import group_of, settings_of
from kafka_pipeline.streams.stores.memory import MemoryStore
from tests.unit.streams.nodes import Nodes, batch, content

Record = tuple[bytes | None, bytes | None]


class Context:
    """Takes what a processor forwards, and has the store of its counts."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.forwarded: list[Batch] = []

    def forward(self, batch: Batch) -> None:
        self.forwarded.append(batch)

    def get_state_store(self, name: str) -> object:
        assert name == COUNTS.name
        return COUNTS.build(self.store)

    def take(self) -> list[bytes | None]:
        """Return the values that were forwarded since the last call."""
        values = [value for batch in self.forwarded for value in batch.values]
        self.forwarded.clear()
        return values


class Started:
    """A processor that was started."""

    def __init__(self, processor: BatchProcessor) -> None:
        self.context = Context()
        self.processor = processor
        processor.init(cast(ProcessorContext, self.context))

    def process(self, given: Batch) -> tuple[list[bytes | None], str | None]:
        """Return what was emitted and why the record behind that was rejected, if one was."""
        rejection: RecordRejectedError | None = None
        try:
            self.processor.process(given)
        except RecordRejectedError as error:
            rejection = error
        emitted = self.context.take()
        if rejection is None:
            return emitted, None
        assert rejection.batch is given, "or the bad record would be searched for"
        assert rejection.index == len(emitted)
        return emitted, rejection.reason

    def run(self, records: Sequence[Record]) -> list[tuple[int, bytes | None]]:
        """Process as a task does, without what is rejected; return outputs with their indices."""
        outputs: list[tuple[int, bytes | None]] = []
        start = 0
        while start < len(records):
            values, rejection = self.process(columns(records[start:]))
            outputs += [(start + offset, value) for offset, value in enumerate(values)]
            start += len(values)
            if rejection is None:
                assert start == len(records), "ended early without a rejection"
                break
            start += 1
        return outputs


def columns(records: Sequence[Record]) -> Batch:
    return Batch(
        [key for key, _ in records], [value for _, value in records], [*range(len(records))]
    )


def sums(*values: bytes | None, constant: int = 1) -> tuple[list[bytes | None], str | None]:
    return Started(SumProcessor(constant)).process(columns([(None, value) for value in values]))


def counted(context: Context) -> dict[bytes, bytes]:
    """Return the counts in the store."""
    return content(context.store)


keys = st.none() | st.sampled_from([b"", b"a", b"b", b"\x00offset"])
values = st.none() | st.sampled_from([b"", b"1", b" +07 ", b"1_0", b"x"]) | st.binary(max_size=3)
records_lists = st.lists(st.tuples(keys, values), max_size=20)
makers: dict[str, Callable[[], BatchProcessor]] = {
    "forward": ForwardProcessor,
    "sum": SumProcessor,
    "count": CountProcessor,
}


def started(name: str) -> Started:
    return Started(makers[name]())


# For all of them.


@pytest.mark.parametrize("name", makers)
@given(records=records_lists, cut=st.integers(0, 20))
def test_cutting_a_batch_in_two_changes_nothing(name: str, records: list[Record], cut: int) -> None:
    cut = min(cut, len(records))
    whole, parts = started(name), started(name)

    first = parts.run(records[:cut])
    second = [(cut + index, value) for index, value in parts.run(records[cut:])]

    assert whole.run(records) == first + second
    assert counted(whole.context) == counted(parts.context)


@pytest.mark.parametrize("name", makers)
@given(records=records_lists)
def test_record_by_record_is_like_a_batch(name: str, records: list[Record]) -> None:
    whole, single = started(name), started(name)
    outputs = [
        (index, value) for index, record in enumerate(records) for _, value in single.run([record])
    ]
    assert whole.run(records) == outputs
    assert counted(whole.context) == counted(single.context)


@pytest.mark.parametrize("name", makers)
@given(records=records_lists, data=st.data())
def test_starting_inside_a_batch_is_like_a_batch_without_its_head(
    name: str, records: list[Record], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))

    def nodes() -> Nodes:
        return Nodes(group_of(Unit(SPECS[name]()), UserCode()))

    inside, headless = nodes(), nodes()
    keys, values = [key for key, _ in records], [value for _, value in records]
    if start < stop:
        inside.runtime.process(batch(values, keys=keys), start, stop)
        headless.runtime.process(batch(values[start:stop], keys=keys[start:stop]), 0, stop - start)

    assert inside.sent == headless.sent


@pytest.mark.parametrize("name", makers)
@given(records=records_lists)
def test_input_is_left_as_it_is(name: str, records: list[Record]) -> None:
    given_batch = columns(records)
    started(name).process(given_batch)
    assert given_batch == columns(records)


@pytest.mark.parametrize("name", makers)
@given(records=records_lists)
def test_keys_times_and_headers_stay_with_their_records(name: str, records: list[Record]) -> None:
    processor = started(name)
    given_batch = columns(records)
    given_batch.headers = [[("h", b"%d" % index)] for index in range(len(records))]
    with suppress(RecordRejectedError):
        processor.processor.process(given_batch)
    for emitted in processor.context.forwarded:
        size = len(emitted)
        assert emitted.keys == given_batch.keys[:size]
        assert emitted.timestamps == given_batch.timestamps[:size]
        assert emitted.headers == given_batch.headers[:size]


@pytest.mark.parametrize("name", makers)
@pytest.mark.parametrize("record", [(b"secret", b"secret"), (None, b"secret")])
def test_rejections_do_not_give_payloads_away(name: str, record: Record) -> None:
    _, rejection = started(name).process(columns([record]))
    assert rejection is None or "secret" not in rejection


# forward


@given(records_lists)
def test_forward_passes_every_value_on(records: list[Record]) -> None:
    assert started("forward").process(columns(records)) == ([v for _, v in records], None)


# sum


@given(st.integers(), st.integers())
def test_sum_adds_to_integers_of_any_size(value: int, constant: int) -> None:
    assert sums(b"%d" % value, constant=constant) == ([b"%d" % (value + constant)], None)


def test_sum_does_not_wrap_at_32_bits() -> None:
    assert sums(b"2147483647") == ([b"2147483648"], None)


@pytest.mark.parametrize("digits", [4_299, 4_300, 4_301, 1_000_000])
def test_sum_takes_integers_of_more_digits_than_python_does_by_default(digits: int) -> None:
    """Python takes half a minute for the longest one; a thread that hangs is replaced."""
    nines, zeros = b"9" * digits, b"0" * digits
    assert sums(nines, b"1") == ([b"1" + zeros, b"2"], None)
    assert sums(b" -00" + nines + b"\n") == ([b"-" + nines[:-1] + b"8"], None)
    assert sums(b"+" + zeros + b"7", constant=-8) == ([b"-1"], None)
    assert sums(b"-" + zeros, constant=0) == ([b"0"], None)


@pytest.mark.parametrize("end", [b"_0", b".0", b"e1", b"x", "\u0661".encode()], ids=repr)
def test_sum_rejects_what_is_long_and_no_integer(end: bytes) -> None:
    assert sums(b"1", b"9" * 5_000 + end) == ([b"2"], "the value is not an integer")


@given(
    st.integers(),
    st.sampled_from([b"", b" ", b"\t", b"\r\n", b"  \x0b\x0c"]),
    st.sampled_from([b"", b" ", b"\n"]),
    st.integers(0, 3),
)
def test_sum_takes_signs_blanks_and_zeros_and_emits_the_canonical_form(
    value: int, before: bytes, after: bytes, zeros: int
) -> None:
    sign = b"-" if value < 0 else b"+"
    text = before + sign + b"0" * zeros + b"%d" % abs(value) + after
    assert sums(text) == ([b"%d" % (value + 1)], None)


@pytest.mark.parametrize("at", [0, 1, 499, 500, 501, 1_200])
@pytest.mark.parametrize("value", [None, b"1_0", b"x", b"", b"9" * 5_000])
def test_sum_of_a_long_batch_goes_up_to_what_is_no_integer(at: int, value: bytes | None) -> None:
    values: list[bytes | None] = [b"%d" % number for number in range(1_500)]
    values[at] = value
    wanted = [b"%d" % (number + 1) for number in range(1_500)]
    emitted, rejection = sums(*values)
    if value and len(value) == 5_000:
        wanted[at] = b"1" + b"0" * 5_000
        assert (emitted, rejection) == (wanted, None)
    else:
        assert emitted == wanted[:at]
        assert rejection == ("the value is not an integer" if value else "the value is empty")


def test_sum_of_minus_zero_is_canonical() -> None:
    assert sums(b"-0", b"-1", constant=0) == ([b"0", b"-1"], None)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b" ",
        b"1_000",
        b"_1",
        b"1_",
        b"1.5",
        b"1.0",
        b"1e3",
        b"0x10",
        b"0b1",
        b"0o7",
        b"- 1",
        b"+-1",
        b"--1",
        b"1 2",
        b"1,000",
        b"one",
        b"nan",
        b"\x00",
        b"1\x00",
        b"\xff",
        "\u0661".encode(),
        "\uff11".encode(),
        "\u00b2".encode(),
        "\u22121".encode(),
        "1\u00a0".encode(),
    ],
    ids=repr,
)
def test_sum_rejects_what_is_no_integer(value: bytes | None) -> None:
    values, rejection = sums(b"1", value, b"2")
    assert values == [b"2"]
    assert rejection is not None


@given(st.binary())
@example(b"1_0")
@example("\u0663".encode())
def test_sum_agrees_with_a_plain_reading_of_ascii_digits(value: bytes) -> None:
    text = value.strip(b" \t\n\r\x0b\x0c")
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    is_integer = bool(digits) and all(byte in b"0123456789" for byte in digits)

    values, rejection = sums(value)

    assert (rejection is None) == is_integer
    assert values == ([b"%d" % (int(text) + 1)] if is_integer else [])


# count


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"\xff"]), max_size=40), st.integers(0, 40))
def test_count_equals_a_counter_over_all_batches(keys: list[bytes], cut: int) -> None:
    processor, seen = started("count"), Counter[bytes]()
    expected = []
    for key in keys:
        seen[key] += 1
        expected.append(b"%d" % seen[key])

    emitted = []
    for part in (keys[:cut], keys[cut:]):
        emitted += processor.process(columns([(key, None) for key in part]))[0]

    assert emitted == expected
    assert counted(processor.context) == {key: b"%d" % count for key, count in seen.items()}


def test_count_goes_on_from_what_the_store_has() -> None:
    processor = started("count")
    processor.context.store.put(b"a", b"41")
    assert processor.process(columns([(b"a", None)])) == ([b"42"], None)
    assert counted(processor.context) == {b"a": b"42"}


def test_count_counts_null_and_empty_values() -> None:
    records: list[Record] = [(b"a", None), (b"a", b""), (b"a", b"x")]
    assert started("count").process(columns(records)) == ([b"1", b"2", b"3"], None)


def test_count_rejects_a_null_key_and_keeps_what_came_before() -> None:
    processor = started("count")
    records: list[Record] = [(b"a", b"1"), (None, b"1"), (b"a", b"1")]

    emitted, rejection = processor.process(columns(records))
    assert emitted == [b"1"]
    assert rejection == "the record has no key to count it under"
    assert counted(processor.context) == {b"a": b"1"}
    assert processor.process(columns(records[2:])) == ([b"2"], None)


def test_count_that_was_rolled_back_counts_again_from_the_committed_state() -> None:
    processor = started("count")
    processor.process(columns([(b"a", None)]))
    processor.context.store.commit(1)
    processor.context.store.mark()
    processor.process(columns([(b"a", None)] * 3))
    processor.context.store.undo()
    assert processor.process(columns([(b"a", None)])) == ([b"2"], None)


def test_count_of_more_keys_than_it_remembers_goes_on_from_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(count, "KNOWN_KEYS", 3)
    processor = started("count")
    records: list[Record] = [(b"%d" % number, None) for number in range(5)]
    for rounds in range(1, 4):
        assert processor.process(columns(records)) == ([b"%d" % rounds] * 5, None)
        assert processor.process(columns(records[:1])) == ([b"%d" % (rounds + 1)], None)
        assert processor.process(columns(records[1:])) == ([b"%d" % (rounds + 1)] * 4, None)
        processor.context.store.undo()
        processor.context.store.put(b"0", b"%d" % rounds)
        processor.context.store.put_many({b"%d" % n: b"%d" % rounds for n in range(1, 5)})
        processor.context.store.commit(rounds)


# The types of pipeline.yaml.


@dataclass(frozen=True)
class Unit:
    """A processor of pipeline.yaml with its topics."""

    spec: ProcessorSpec
    on_error: OnError = OnError.FAIL
    dead_letter_topic: str | None = None
    max_dead_letters_per_minute: int | None = None
    name: str = "P"
    from_: tuple[str, ...] = ("source",)
    to: tuple[str, ...] = ("Next", "sink")
    in_topics: tuple[str, ...] = ("in",)
    out_topics: tuple[str, ...] = ("pipeline_P_Next", "out")
    sources: Mapping[str, SourceSpec] = field(default_factory=dict)


def emitted(unit: Unit, *records: Record) -> list[tuple[str, bytes | None]]:
    """Return topics and values of what the nodes of a processor send."""
    nodes = Nodes(group_of(unit, UserCode()))
    keys, values = [key for key, _ in records], [value for _, value in records]
    assert nodes.process(batch(values, keys=keys)) == []
    return [(topic, value) for topic, _, value, _ in nodes.sent]


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        (Unit(ForwardSpec()), b"1"),
        (Unit(SumSpec()), b"2"),
        (Unit(SumSpec(constant=-5)), b"-4"),
        (Unit(CountSpec()), b"1"),
    ],
)
def test_a_type_of_the_pipeline_sends_its_results_to_all_targets(unit: Unit, value: bytes) -> None:
    assert emitted(unit, (b"k", b"1")) == [("pipeline_P_Next", value), ("out", value)]


def test_a_type_of_the_pipeline_is_one_node_group_that_reads_its_topics() -> None:
    unit = Unit(CountSpec(), from_=("source", "A"), in_topics=("a", "b"))
    group = group_of(unit, UserCode())
    assert [node.name for node in group.nodes] == ["source of P", "A of P", "P", "Next", "sink"]
    assert group.in_topics == ("a", "b")
    assert group.stores == (COUNTS,)
    assert group_of(Unit(SumSpec()), UserCode()).stores == ()


def test_built_in_types_take_inputs_as_they_come_and_errors_as_configured() -> None:
    unit = Unit(SumSpec(), on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
    found = settings_of(unit)
    assert found.takes_inputs_as_they_come
    assert (found.on_error, found.dead_letter_topic) == (OnError.DEAD_LETTER, "dead")
