"""How Spark is started: no secrets where others can read."""

from __future__ import annotations

import pytest

from streams.spark.start import public


@pytest.mark.parametrize(
    "name", ["authenticate.secret", "ssl.keyPassword", "hadoop.fs.s3a.access.key", "x.token"]
)
def test_secrets_are_kept_from_the_command_line(name: str) -> None:
    conf = {f"spark.{name}": "hidden", "spark.authenticate": "true"}
    assert public(conf) == {"spark.authenticate": "true"}
