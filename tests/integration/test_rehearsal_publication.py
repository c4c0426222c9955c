"""What a rehearsal publishes, in a real Kafka: the last state counts, until it is discarded."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace

import pytest
from msgspec import structs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.console.kafka_job import KafkaJob
from kafka_pipeline.operations.rehearsal.publication import (
    Phase,
    Publication,
    Publisher,
    remove_publication,
)
from tests.console_rehearsal import rehearsed
from tests.console_sample import config

pytestmark = pytest.mark.integration


def shown(of: Config) -> Publication | None:
    found = KafkaJob(of).rehearsal()
    return None if found is None else found.publication


def test_the_console_has_the_last_state_of_a_rehearsal_until_it_is_discarded(
    bootstrap_servers: str,
) -> None:
    host, _, port = bootstrap_servers.rpartition(":")
    name = f"published_{os.getpid()}"
    job = replace(config(), server_ip=host, server_port=int(port), job_name=name)
    key = replace(job, control_key=ControlKey((b"k" * 32,)))
    admin, ended = Admin(job), rehearsed().publication
    begun = structs.replace(ended, phase=Phase.SAVING, report=None, figures={})
    assert shown(job) is None
    with closing(Publisher(job, admin, begun)) as publisher:
        publisher.update(phase=Phase.STARTING)
    assert shown(job) == structs.replace(begun, phase=Phase.STARTING)
    with pytest.raises(UnavailableError, match="not signed"):
        shown(key)
    with closing(Publisher(key, admin, begun)) as publisher:
        publisher.update(phase=ended.phase, report=ended.report, figures=ended.figures)
    assert shown(key) == shown(job) == ended
    assert remove_publication(job, admin) == [job.topic_names.rehearsal]
