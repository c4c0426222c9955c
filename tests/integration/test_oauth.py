"""A job that logs in with tokens from a function of its own, on a Kafka that wants OAUTHBEARER."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import command_path
from tests.brokers import local_cluster
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LISTENER = "listener.name.plaintext.oauthbearer.sasl"
BROKER = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    f"{LISTENER}.jaas.config": f'{LOGIN} required unsecuredLoginStringClaim_sub="broker";',
}
PIPELINE = """
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
# The broker takes tokens without a signature (RFC 7515, appendix A.5). They are renewed meanwhile.
TOKENS = """
import base64, json, os, time

def _part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

def token(config):
    now = time.time()
    claims = {"sub": config, "iat": now, "exp": now + 10}
    return f'{_part({"alg": "none"})}.{_part(claims)}.', now + 10

def refused(config):
    return "header.claims.", time.time() + 10

def broken(config):
    raise RuntimeError("a-token-of-somebody")
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with local_cluster(tmp_path_factory.mktemp("oauth"), settings=BROKER) as found:
        yield found


@pytest.fixture
def job(tmp_path: Path, servers: str) -> Iterator[Engine]:
    (tmp_path / "tokens_of_job.py").write_text(TOKENS)
    settings = {
        "tm_number": 1,
        "parallelism": 1,
        "modules": ["tokens_of_job"],
        "python_path": [str(tmp_path)],
        "kafka": kafka_with("token"),
    }
    with engine(tmp_path, servers, f"oauth_{os.getpid()}", PIPELINE, **settings) as made:
        yield made


def kafka_with(function: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "somebody",
        "sasl.oauthbearer.callback": f"tokens_of_job:{function}",
    }


def refused(job: Engine, function: str) -> str:
    """Return what a command says that gets its tokens from another function."""
    config = job.write_config(function, kafka=kafka_with(function))
    done = subprocess.run(
        [command_path("pipeline"), "topics", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_daemons_workers_and_commands_log_in_with_tokens_of_a_function(job: Engine) -> None:
    job.start_job_manager()
    job.start_task_manager(0, 1)
    job.wait_until(all_run([0]), timeout_s=60)
    job.write([(b"k", b"1")] * 10)
    job.wait_until_done({job.config.sink_topic: 10})
    assert "Adder" in job.run_command("status")
    said = refused(job, "broken")
    assert "sasl.oauthbearer.callback tokens_of_job:broken raised RuntimeError" in said
    assert "a-token-of-somebody" not in said
    said = refused(job, "refused")
    assert "SASL authentication error" in said
    assert "header.claims" not in said
