"""A daemon whose port for metrics is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_pipeline.common.errors import UnavailableError
from tests.engine import engine
from tests.pages import Pages
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = "- {id: Adder, type: sum, to: [sink]}\n"


def test_a_daemon_whose_port_is_taken_says_so_and_ends(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    settings = {"tm_number": 1, "log_format": "json", "metrics_port": 0}
    name = f"metrics_{os.getpid()}"
    with engine(tmp_path, bootstrap_servers, name, PIPELINE, **settings) as job:
        port = Pages(job.start_task_manager(0)).port
        same = job.write_config("same", metrics_port=port)
        second = job.start_task_manager(0, config_file=same)
        wait_until(lambda: second.exit_code is not None)
        assert second.exit_code == UnavailableError.exit_code
        assert f"metrics_port {port} of 127.0.0.1 is taken" in second.log_file.read_text()
