"""`pipeline validate` of functions with groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history import CONFIG
from tests.in_process import invoke
from tests.tiers import long_but_the_first

# With the fixture, these run where Spark does: see tests/scheduling.py.
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("queries")]

RIGHT = """
- id: Hourly
  type: dataframe
  function: tests.user_code.grouped_frames:hourly
  group_by: {key: true, window: 1 h}
  emit: on_close
  grace: 1 h
  format: json
  schema: customer STRING, n INT
  to: [sink]
"""
OTHER_SIZE = RIGHT.replace("window: 1 h", "window: 2 h")
NOT_NAMED = RIGHT.replace(
    "  group_by: {key: true, window: 1 h}\n  emit: on_close\n  grace: 1 h\n", ""
)


@pytest.mark.parametrize(
    ("text", "problem"),
    long_but_the_first(
        [
            (RIGHT, ""),
            (OTHER_SIZE, "write group_by: {key: true, window: 1 h}"),
            (NOT_NAMED, "add group_by: {key: true, window: 1 h}"),
        ],
        2,
    ),
)
def test_validate_says_what_to_write(tmp_path: Path, text: str, problem: str) -> None:
    config, pipeline = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(f"{CONFIG}2\n")
    pipeline.write_text(text)
    found = invoke("validate", config, pipeline)
    assert found.exit_code == (2 if problem else 0), found.output
    assert problem in found.output
    assert (f'{pipeline}:2:7: "Hourly": ' in found.output) is bool(problem)
