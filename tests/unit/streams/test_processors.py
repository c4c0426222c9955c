"""The built-in processors: what they emit, however their input is cut into batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.nodes import ProcessorType
from common.record_batch import RecordBatch
from streams.count import CountProcessor
from streams.forward import ForwardProcessor
from streams.processor import BatchProcessor, create_processor
from streams.results import Results
from streams.sum import SumProcessor

Record = tuple[bytes | None, bytes | None]


class DictStore:
    """A store in a dict; remembers what was written."""

    def __init__(self) -> None:
        self.content: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.content.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        self.content[key] = value


def batch(records: Sequence[Record]) -> RecordBatch:
    return RecordBatch(
        "in",
        0,
        [key for key, _ in records],
        [value for _, value in records],
        [0] * len(records),
        list(range(len(records))),
    )


def sums(*values: bytes | None, start: int = 0, constant: int = 1) -> Results:
    return SumProcessor(constant).process(batch([(None, value) for value in values]), start)


def run(processor: BatchProcessor, records: Sequence[Record]) -> list[tuple[int, bytes | None]]:
    """Process as a task does: skip what is rejected. Return each output with its record's index."""
    outputs: list[tuple[int, bytes | None]] = []
    start = 0
    while start < len(records):
        values, rejection = processor.process(batch(records), start)
        outputs += [(start + offset, value) for offset, value in enumerate(values)]
        start += len(values)
        if rejection is None:
            assert start == len(records), "ended early without a rejection"
            break
        start += 1
    return outputs


keys = st.none() | st.sampled_from([b"", b"a", b"b", b"\x00offset"])
values = st.none() | st.sampled_from([b"", b"1", b" +07 ", b"1_0", b"x"]) | st.binary(max_size=3)
records_lists = st.lists(st.tuples(keys, values), max_size=20)
makers: dict[str, Callable[[], BatchProcessor]] = {
    "forward": ForwardProcessor,
    "sum": SumProcessor,
    "count": lambda: CountProcessor(DictStore()),
}


# For all of them.


@pytest.mark.parametrize("name", makers)
@given(records=records_lists, cut=st.integers(0, 20))
def test_cutting_a_batch_in_two_changes_nothing(name: str, records: list[Record], cut: int) -> None:
    cut = min(cut, len(records))
    whole, parts = makers[name](), makers[name]()

    first = run(parts, records[:cut])
    second = [(cut + index, value) for index, value in run(parts, records[cut:])]

    assert run(whole, records) == first + second


@pytest.mark.parametrize("name", makers)
@given(records=records_lists, data=st.data())
def test_starting_inside_a_batch_is_like_a_batch_without_its_head(
    name: str, records: list[Record], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(records)))
    headless = makers[name]().process(batch(records[start:]), 0)

    assert makers[name]().process(batch(records), start) == headless


@pytest.mark.parametrize("name", makers)
def test_empty_batch_gives_nothing(name: str) -> None:
    assert makers[name]().process(batch([]), 0) == Results([])


@pytest.mark.parametrize("name", makers)
@given(records=records_lists)
def test_input_is_left_as_it_is(name: str, records: list[Record]) -> None:
    given_batch = batch(records)
    makers[name]().process(given_batch, 0)
    assert given_batch == batch(records)


@pytest.mark.parametrize("name", makers)
@given(records=records_lists)
def test_rejections_do_not_give_payloads_away(name: str, records: list[Record]) -> None:
    secret = [(b"secret", b"secret"), (None, b"secret")]
    for record in secret:
        rejection = makers[name]().process(batch([record]), 0).rejection
        assert rejection is None or "secret" not in rejection


# forward


@given(records_lists)
def test_forward_passes_every_value_on(records: list[Record]) -> None:
    assert ForwardProcessor().process(batch(records), 0) == Results([v for _, v in records])


# sum


@given(st.integers(), st.integers())
def test_sum_adds_to_integers_of_any_size(value: int, constant: int) -> None:
    assert sums(b"%d" % value, constant=constant) == Results([b"%d" % (value + constant)])


def test_sum_does_not_wrap_at_32_bits() -> None:
    assert sums(b"2147483647") == Results([b"2147483648"])


@pytest.mark.parametrize("digits", [4_299, 4_300, 4_301, 1_000_000])
def test_sum_takes_integers_of_more_digits_than_python_does_by_default(digits: int) -> None:
    """Python takes half a minute for the longest one; a thread that stands still is replaced."""
    nines, zeros = b"9" * digits, b"0" * digits
    assert sums(nines, b"1") == Results([b"1" + zeros, b"2"])
    assert sums(b" -00" + nines + b"\n") == Results([b"-" + nines[:-1] + b"8"])
    assert sums(b"+" + zeros + b"7", constant=-8) == Results([b"-1"])
    assert sums(b"-" + zeros, constant=0) == Results([b"0"])


@pytest.mark.parametrize("end", [b"_0", b".0", b"e1", b"x", "\u0661".encode()], ids=repr)
def test_sum_rejects_what_is_long_and_no_integer(end: bytes) -> None:
    assert sums(b"1", b"9" * 5_000 + end) == Results([b"2"], "the value is no integer")


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
    assert sums(text) == Results([b"%d" % (value + 1)])


def test_sum_of_minus_zero_is_canonical() -> None:
    assert sums(b"-0", b"-1", constant=0) == Results([b"0", b"-1"])


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
    assert sums(b"1", value, b"2", start=2) == Results([b"3"])


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
    store, seen = DictStore(), Counter[bytes]()
    expected = []
    for key in keys:
        seen[key] += 1
        expected.append(b"%d" % seen[key])

    processor = CountProcessor(store)
    emitted = []
    for part in (keys[:cut], keys[cut:]):
        emitted += processor.process(batch([(key, None) for key in part]), 0).values

    assert emitted == expected
    assert store.content == {key: b"%d" % count for key, count in seen.items()}


def test_count_goes_on_from_what_the_store_has() -> None:
    store = DictStore()
    store.put(b"a", b"41")
    assert CountProcessor(store).process(batch([(b"a", None)]), 0) == Results([b"42"])
    assert store.content == {b"a": b"42"}


def test_count_counts_null_and_empty_values() -> None:
    records: list[Record] = [(b"a", None), (b"a", b""), (b"a", b"x")]
    assert CountProcessor(DictStore()).process(batch(records), 0) == Results([b"1", b"2", b"3"])


def test_count_rejects_a_null_key_and_keeps_what_came_before() -> None:
    store = DictStore()
    processor = CountProcessor(store)
    records: list[Record] = [(b"a", b"1"), (None, b"1"), (b"a", b"1")]

    values, rejection = processor.process(batch(records), 0)
    assert values == [b"1"]
    assert rejection is not None
    assert store.content == {b"a": b"1"}
    assert processor.process(batch(records), 2) == Results([b"2"])


def test_count_that_was_rolled_back_counts_again_from_the_committed_state() -> None:
    store = DictStore()
    processor = CountProcessor(store)
    processor.process(batch([(b"a", None)] * 3), 0)
    store.content.clear()
    assert processor.process(batch([(b"a", None)]), 0) == Results([b"1"])


# The types of pipeline.yaml.


def test_types_of_the_pipeline_make_their_processors() -> None:
    assert isinstance(create_processor(ProcessorType.FORWARD, {}, None), ForwardProcessor)
    assert isinstance(create_processor(ProcessorType.COUNT, {}, DictStore()), CountProcessor)
    adder = create_processor(ProcessorType.SUM, {}, None)
    assert adder.process(batch([(None, b"1")]), 0) == Results([b"2"])


def test_constant_of_sum_comes_from_the_configuration() -> None:
    adder = create_processor(ProcessorType.SUM, {"constant": -5}, None)
    assert adder.process(batch([(None, b"1")]), 0) == Results([b"-4"])
