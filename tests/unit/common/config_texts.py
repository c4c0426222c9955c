"""Contents of a config.yaml, and the configuration loaded from them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError

REQUIRED = {
    "server_ip": "127.0.0.1",
    "server_port": 9092,
    "tm_number": 2,
    "parallelism": 2,
    "replication_factor": 1,
    "source_topic": "source_topic",
    "sink_topic": "sink_topic",
}
BASE = "".join(f"{key}: {value}\n" for key, value in REQUIRED.items())
"""Lines 1 to 7; what a test adds begins on line 8."""


def load(text: str | bytes) -> Config:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_config(path)


def problems_in(text: str | bytes) -> list[str]:
    """Return `line:column: message` for each problem."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.exit_code == 2
    assert all(Path(p.file).name == "config.yaml" for p in caught.value.problems)
    return [f"{p.line}:{p.column}: {p.message}" for p in caught.value.problems]


def with_value(key: str, value: str) -> str:
    """Return the base with one of its values replaced."""
    return BASE.replace(f"{key}: {REQUIRED[key]}\n", f"{key}: {value}\n")
