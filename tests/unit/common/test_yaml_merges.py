"""Merge keys of YAML (`<<`), as docker-compose and GitLab have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.config.yaml_positions import Problems, plain, read_yaml

BASE = "base: &base {a: 1, b: 2}\nother: &other {b: 3, c: 4}\n"


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ("{<<: *base}", {"a": 1, "b": 2}),
        ("{<<: *base, b: 5}", {"a": 1, "b": 5}),
        ("{b: 5, <<: *base}", {"a": 1, "b": 5}),
        ("{<<: [*base, *other]}", {"a": 1, "b": 2, "c": 4}),
        ("{<<: [*other, *base], a: null}", {"a": None, "b": 3, "c": 4}),
        ("{<<: *base, <<: *other}", {"a": 1, "b": 2, "c": 4}),
        ("{<<: {d: {<<: *base}}}", {"d": {"a": 1, "b": 2}}),
        ("{'<<': 1}", {"<<": 1}),
    ],
)
def test_keys_of_the_map_itself_count_before_those_that_are_merged(
    tmp_path: Path, given: str, merged: object
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"{BASE}x: {given}\n")
    problems = Problems(file)
    assert plain(read_yaml(file, problems))["x"] == merged
    problems.raise_if_any()
