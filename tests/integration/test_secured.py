"""A job on a Kafka with TLS, users and ACLs: each daemon has its own name, and the least rights."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from admin.broker.certificates import Authority
from admin.broker.ports import LOOPBACK
from admin.daemons import command_path
from common.cluster_status import ClusterStatus, Presence
from tests.engine import Engine, all_run, engine, signal_session
from tests.secured import Secured, bindings, secured_cluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_job_numbers = itertools.count()

PIPELINE = """
- {id: Adder, type: sum, to: [Counter], on_error: dead_letter}
- {id: Counter, type: count, to: [sink]}
"""
KEYS = 20


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


@pytest.fixture
def job(tmp_path: Path, secured: Secured) -> Iterator[Engine]:
    """A job whose config.yaml is the administrator's; `config_of` has the others."""
    name = f"secured_{os.getpid()}_{next(_job_numbers)}"
    settings = {
        "kafka": secured.kafka("admin"),
        "num_standby_replicas": 1,
        "heartbeat_interval_ms": 500,
    }
    with engine(tmp_path, secured.servers, name, PIPELINE, **settings) as made:
        yield made


def config_of(job: Engine, secured: Secured, user: str, form: str = "yaml") -> Path:
    return job.write_config(user, kafka=secured.kafka(user, form))


def has_standbys(status: ClusterStatus) -> bool:
    return all_run([0, 1])(status) and bool(status.standbys)


def test_job_with_the_least_rights_survives_a_kill(job: Engine, secured: Secured) -> None:
    """One daemon logs in with a password, the others with certificates."""
    acls = bindings(job.run_command("acls", "--json", with_pipeline=True))
    secured.grant(acls)
    job.start_job_manager(config_file=config_of(job, secured, "jobmanager"))
    job.wait_until(lambda status: status.job_manager.presence is Presence.UP, timeout_s=30)
    config = config_of(job, secured, "taskmanager", "tls.yaml")
    managers = [job.start_task_manager(tm_id, 1, config_file=config) for tm_id in (0, 1)]
    job.wait_until(has_standbys, timeout_s=60)
    rows = [(b"k%d" % (n % KEYS), b"1") for n in range(10 * KEYS)]
    job.write(rows)
    job.wait_until_done({job.config.sink_topic: 10 * KEYS})
    signal_session(managers[0], signal.SIGKILL)
    job.wait_until(all_run([1]))
    job.write(rows)
    job.wait_until_done({job.config.sink_topic: 20 * KEYS})
    found = Counter(key for key, _ in job.read(job.config.sink_topic))
    assert found == {b"k%d" % n: 20 for n in range(KEYS)}
    finals = {value for _, value in job.read(job.config.sink_topic)}
    assert finals == {b"%d" % n for n in range(1, 21)}
    assert "authorization failed" not in job.logs().lower()


# Errors.


def refused(job: Engine, settings: Mapping[str, str]) -> str:
    """Run a command with a login that is refused, and return what it says."""
    config = job.write_config("refused", kafka=dict(settings))
    done = subprocess.run(
        [command_path("pipeline"), "topics", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 3, done.stdout
    return done.stdout


def test_wrong_password_is_a_clear_error_that_does_not_repeat_it(
    job: Engine, secured: Secured
) -> None:
    said = refused(job, {**secured.kafka("operator"), "sasl.password": "a-wrong-secret"})
    assert "SASL authentication error" in said
    assert "correct sasl.mechanism, sasl.username or sasl.password" in said
    assert "a-wrong-secret" not in said


def test_client_certificate_of_an_unknown_authority(
    job: Engine, secured: Secured, tmp_path: Path
) -> None:
    file = tmp_path / "stranger.pem"
    file.write_text(Authority.make("stranger").issue("operator"))
    own = {"ssl.certificate.location": str(file), "ssl.key.location": str(file)}
    said = refused(job, {**secured.kafka("operator", "tls.yaml"), **own})
    assert "the broker does not accept the client's certificate" in said
    assert "PRIVATE KEY" not in said


@pytest.mark.parametrize("reason", ["unknown authority", "expired", "wrong host name"])
def test_brokers_certificate_that_is_not_accepted(
    job: Engine, secured: Secured, tmp_path: Path, reason: str
) -> None:
    authority, stranger = Authority.make("test"), Authority.make("stranger")
    issued = {
        "unknown authority": lambda: stranger.issue("broker", [LOOPBACK]),
        "expired": lambda: authority.issue("broker", [LOOPBACK], timedelta(days=-1)),
        "wrong host name": lambda: authority.issue("broker", ["kafka.example.com"]),
    }[reason]()
    trusted = tmp_path / "ca.pem"
    trusted.write_text(authority.pem)
    with tls_server(tmp_path, issued) as address:
        own = {"bootstrap.servers": address, "ssl.ca.location": str(trusted)}
        said = refused(job, {**secured.kafka("operator"), **own})
    assert "the broker's certificate is not accepted" in said
    assert "has expired, or it is for another host name" in said
    assert secured.kafka("operator")["sasl.password"] not in said


@contextmanager
def tls_server(folder: Path, certificate: str) -> Iterator[str]:
    """Answer handshakes on a free port with a certificate; yield the address."""
    file = folder / "server.pem"
    file.write_text(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    # The listener shuts down below; a client that hangs up is what the tests are about.
    with socket.create_server((LOOPBACK, 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with suppress(OSError), connection:
                        connection.settimeout(5)
                        context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
