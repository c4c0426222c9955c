"""Whether two JSON values are the same to a query, where only Spark knows their types."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.sql.json_values import have_same_fields

NAMES = ("a", "b")
SAME = [
    ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}'),
    ('{"a": 1, "b": null}', '{"a": 1}'),
    ('{"a": 1, "c": 2}', '{"a": 1, "c": 3}'),
    ('{"a": 2, "a": 1}', '{"a": 1}'),
    ('{"a": "\\u0041"}', '{"a": "A"}'),
    ("{'a': 1}", "{'a': 1}"),
]
OTHERS = [
    ('{"a": 1}', '{"a": 2}'),
    ('{"a": 1}', '{"a": "1"}'),
    ('{"a": 1}', '{"a": true}'),
    ('{"a": 0.1}', '{"a": 0.1000000000000000055511151231257827}'),
    ('{"a": 1.0}', '{"a": 1.00}'),
    ('{"a": 0}', '{"a": -0}'),
    ('{"a": {"x": 1, "y": 2}}', '{"a": {"y": 2, "x": 1}}'),
    ('{"a": {}}', '{"a": []}'),
    ('{"a": [1, 2]}', '{"a": [2, 1]}'),
    ("{}", "[]"),
    ("{}", "{'a': 1}"),
    ("{}", "{} {}"),
    ("[" * 100_000, "{}"),
]


@pytest.mark.parametrize(
    ("value", "other", "are_same"),
    [*((*pair, True) for pair in SAME), *((*pair, False) for pair in OTHERS)],
)
def test_fields_are_compared_as_they_are_written(value: str, other: str, *, are_same: bool) -> None:
    assert have_same_fields(value.encode(), other.encode(), NAMES) == are_same
    assert have_same_fields(other.encode(), value.encode(), NAMES) == are_same


def test_a_deletion_and_text_that_is_not_unicode_are_no_object() -> None:
    assert not have_same_fields(None, b"{}", NAMES)
    assert not have_same_fields(b'{"a": "\xff"}', b'{"a": "\xfe"}', NAMES)
