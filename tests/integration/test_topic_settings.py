"""Topics that somebody has made or changed by hand, so that they would lose state or records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from tests.engine import Engine

pytestmark = pytest.mark.integration

PIPELINE = """
- {id: Forwarder, type: forward, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""


def test_what_loses_state_or_records_is_refused(tmp_path: Path, bootstrap_servers: str) -> None:
    job = Engine(tmp_path, bootstrap_servers, f"settings_{os.getpid()}", PIPELINE)
    by_hand = {
        job.names.state("Counter"): {"cleanup.policy": "delete", "delete.retention.ms": "1000"},
        job.names.arc("Forwarder", "Counter"): {
            "retention.ms": "604800000",
            "retention.bytes": "1073741824",
        },
    }
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    made = client.create_topics([NewTopic(name, 2, 1, config=c) for name, c in by_hand.items()])
    for future in made.values():
        future.result(30)
    admin = Admin(job.config)
    specs = job.pipeline.data_topics(1)
    with pytest.raises(ConfigError) as caught:
        admin.ensure_topics(specs)
    problems = str(caught.value).splitlines()
    state, arc = by_hand
    assert [line.partition(" is ")[0] for line in sorted(problems)] == [
        f"topic {arc}: retention.bytes",
        f"topic {arc}: retention.ms",
        f"topic {state}: cleanup.policy",
        f"topic {state}: delete.retention.ms",
        f"topic {state}: message.timestamp.type",
    ]
    # Nothing was made meanwhile.
    assert set(admin.partition_counts(spec.name for spec in specs)) == set(by_hand)


def test_what_the_engine_has_made_is_right(tmp_path: Path, bootstrap_servers: str) -> None:
    job = Engine(tmp_path, bootstrap_servers, f"right_{os.getpid()}", PIPELINE)
    admin = Admin(job.config)
    specs = job.pipeline.data_topics(1)
    assert len(admin.ensure_topics(specs)) == len(specs)
    assert admin.ensure_topics(specs) == []
