"""The smallest config.yaml, for what needs no Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafka_pipeline.common.config.config import Config

SMALL_CONFIG = """
server_ip: 127.0.0.1
server_port: 9092
tm_number: 1
parallelism: 1
replication_factor: 1
source_topic: in
sink_topic: out
"""
"""Lines 2 to 8: a test adds its own behind them."""

_LOADED = Config(
    server_ip="127.0.0.1",
    server_port=9092,
    tm_number=1,
    parallelism=1,
    replication_factor=1,
    source_topic="in",
    sink_topic="out",
)


def small_config(**changes: Any) -> Config:
    """Return the content of `SMALL_CONFIG`, with other values for some keys."""
    return replace(_LOADED, **changes)
