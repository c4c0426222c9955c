"""The size of records, against a writer of the same format."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.record_batch import KafkaHeaders, record_size, size_bound, sizes
from tests.raw_records import record_batch

contents = st.none() | st.binary(max_size=10) | st.integers(0, 70_000).map(bytes)
headers_lists: st.SearchStrategy[KafkaHeaders] = st.none() | st.lists(
    st.tuples(st.text(max_size=80), contents), max_size=70
)
records = st.tuples(contents, contents, headers_lists)


@given(records)
def test_size_is_that_of_a_batch_with_the_record_alone(
    record: tuple[bytes | None, bytes | None, KafkaHeaders],
) -> None:
    key, value, headers = record
    raw = [(name.encode(), content) for name, content in headers or []]
    assert record_size(key, value, headers) == len(record_batch([(key, value, raw)]))


@given(st.lists(records, max_size=5))
def test_no_record_exceeds_the_bound(
    rows: list[tuple[bytes | None, bytes | None, KafkaHeaders]],
) -> None:
    keys, values, headers = ([row[at] for row in rows] for at in range(3))
    bound = size_bound(keys, sizes(values), headers)  # type: ignore[arg-type]
    assert all(record_size(*row) <= bound for row in rows)
