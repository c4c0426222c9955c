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

from kafka_pipeline.admin.broker.certificates import Authority
from kafka_pipeline.admin.broker.ports import LOOPBACK
from kafka_pipeline.admin.daemons import Daemon, command_path
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, Presence
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import BulkWriter, read_committed
from kafka_pipeline.common.topics import TopicSpec
from tests.engine import Engine, all_run, engine, signal_session
from tests.in_process import invoke
from tests.secured import Secured, binding, bindings

pytestmark = pytest.mark.integration

_job_numbers = itertools.count()

ROOT = Path(__file__).parents[2]
KEYS = 20

PIPELINE = """
sources: {{customers: customers_{job}}}
sinks: {{named: named_{job}, values: values_{job}}}
processors:
- {{id: Gate, type: "tests.user_code.gates:Gate", config: {{file: "{gate}"}}, to: [Counter],
   on_error: dead_letter}}
- {{id: Counter, type: count, to: [sink]}}
- id: Named
  type: sql
  from: [source]
  tables: {{customers: {{topic: customers}}}}
  query: SELECT i.key, c.value AS value FROM input i JOIN customers c ON i.key = c.key
  to: [named]
- {{id: Values, type: topology, builder: "tests.user_code.topologies:by_value",
   config: {{lines: source, counts: values}}}}
"""
MORE = "- {id: Copy, type: forward, from: [source], to: [values]}\n"
COUNT = "- {id: Again, type: count, to: [sink]}\n"


@pytest.fixture
def job(tmp_path: Path, secured: Secured) -> Iterator[Engine]:
    """A job whose config.yaml is the administrator's; `config_of` has the others."""
    name = f"secured_{os.getpid()}_{next(_job_numbers)}"
    settings = {
        "kafka": secured.kafka("admin"),
        "parallelism": 1,
        "num_standby_replicas": 1,
        "heartbeat_interval_ms": 500,
        "modules": "[tests.user_code.gates, tests.user_code.topologies]",
        "python_path": f"[{ROOT}]",
    }
    pipeline = PIPELINE.format(job=name, gate=tmp_path / "open")
    with engine(tmp_path, secured.servers, name, pipeline, **settings) as made:
        yield made


def config_of(job: Engine, secured: Secured, user: str, form: str = "yaml") -> Path:
    return job.write_config(user, kafka=secured.kafka(user, form))


def run_as(job: Engine, secured: Secured, user: str, words: str, *more: str | Path) -> str:
    """Run a `pipeline` command as a user; return what it prints."""
    command, config = words.split(), config_of(job, secured, user)
    done = invoke(*command, config, *more)
    assert done.exit_code == 0, f"{words} ended with {done.exit_code}:\n{done.output}\n{job.logs()}"
    return done.output


def has_standbys(status: ClusterStatus) -> bool:
    return all_run([0, 1])(status) and bool(status.standbys)


def start(job: Engine, secured: Secured) -> list[Daemon]:
    """Start the daemons; return the TaskManagers, which log in with certificates."""
    customers = f"customers_{job.config.job_name}"
    Admin(job.config).ensure_topics([TopicSpec(customers, 1, 1)])
    writer = BulkWriter(job.config, customers)
    writer.write((b"k%d" % n, b"name %d" % n) for n in range(KEYS))
    writer.flush(30)
    job.start_job_manager(config_file=config_of(job, secured, "jobmanager"))
    job.wait_until(lambda status: status.job_manager.presence is Presence.UP, timeout_s=30)
    config = config_of(job, secured, "taskmanager", "tls.yaml")
    managers = [job.start_task_manager(tm_id, 1, config_file=config) for tm_id in (0, 1)]
    job.wait_until(has_standbys, timeout_s=60)
    return managers


def write_part(job: Engine) -> None:
    """Write three records of each key; the gate rejects one of them while it is shut."""
    job.write([(b"k%d" % n, value) for value in (b"open", b"shut", b"open") for n in range(KEYS)])


def wait_for(job: Engine, counted: int, read: int) -> None:
    """Wait for so many results of each key behind the gate, and of all records that were read."""
    name = job.config.job_name
    job.wait_until_done(
        {
            job.config.sink_topic: counted * KEYS,
            f"named_{name}": read * KEYS,
            f"values_{name}": read * KEYS,
        }
    )


def operators_rights(job: Engine) -> list[tuple[str, tuple[str, str, str]]]:
    """Return commands, each with a right that it needs: kind, name and operation."""
    names = job.names
    dead = names.dead_letter("Gate")
    return [
        ("status", ("topic", names.heartbeat, "Read")),
        ("versions", ("topic", names.pipeline, "Read")),
        ("pause", ("topic", names.pipeline, "Write")),
        ("pause", ("topic", names.pipeline, "DescribeConfigs")),
        ("pause", ("transactional-id", names.pipeline_transactional_id, "Write")),
        ("dlq list", ("topic", dead, "Read")),
        ("dlq redrive --yes", ("topic", dead, "Write")),
        ("dlq redrive --yes", ("topic", job.config.source_topic, "Write")),
        ("dlq redrive --yes", ("transactional-id", names.dead_letters_transactional_id, "Write")),
    ]


def assert_named(job: Engine, secured: Secured, words: str, right: tuple[str, str, str]) -> None:
    """Run an operator's command without a right: it says which, and no secret."""
    kind, name, operation = right
    taken = binding(kind, name, "literal", "User:operator", operation)
    command, *options = words.split("--")
    config = config_of(job, secured, "operator")
    arguments = [*command.split(), str(config), *(f"--{each.strip()}" for each in options)]
    secured.revoke([taken])
    done = invoke(*arguments)
    secured.grant([taken])
    said = f"{done.output}{done.exception or ''}"
    assert f"a right is missing, {operation} of {kind.replace('-', ' ')} {name} " in said
    assert done.exit_code in (2, 3) or words == "status"
    assert secured.kafka("operator")["sasl.password"] not in said


@pytest.mark.long
def test_a_job_and_those_who_work_with_it_need_no_more_than_their_rights(
    job: Engine, secured: Secured, tmp_path: Path
) -> None:
    secured.grant(bindings(job.run_command("acls", "--json", with_pipeline=True)))
    managers = start(job, secured)
    write_part(job)
    wait_for(job, counted=2, read=3)
    signal_session(managers[0], signal.SIGKILL)
    job.wait_until(all_run([1]))
    write_part(job)
    wait_for(job, counted=4, read=6)

    def operate(words: str, *more: str | Path) -> str:
        return run_as(job, secured, "operator", words, *more)

    (tmp_path / "open").touch()
    for words, right in operators_rights(job):
        assert_named(job, secured, words, right)
    assert f"redriven: {2 * KEYS} dead letters" in operate("dlq redrive", "--yes")
    # They go back to the source, which others read too.
    wait_for(job, counted=6, read=8)
    assert "held" in operate("pause", "Counter")
    operate("resume", "Counter")
    operate("restart", "Counter")
    assert "tasks rest" in operate("drain")
    operate("resume")
    job.write_pipeline(PIPELINE.format(job=job.config.job_name, gate=tmp_path / "open") + MORE)
    secured.grant(bindings(job.run_command("acls", "--json", with_pipeline=True)))
    assert "by Copy, from its oldest record" in operate("plan", tmp_path / "pipeline.yaml")
    assert "done: version 2" in operate("apply", tmp_path / "pipeline.yaml", "--yes")
    assert "CURRENT" in operate("versions")
    assert "RUNNING" in operate("status")
    saved = tmp_path / "saved"
    run_as(job, secured, "maintainer", "savepoint create", saved)
    said = run_as(job, secured, "maintainer", "savepoint restore", saved, "--yes")
    assert "is the pipeline of the job" in said
    job.wait_until(all_run([1]))
    write_part(job)
    wait_for(job, counted=9, read=11)
    found = Counter(job.read(job.config.sink_topic))
    assert found == {(b"k%d" % n, b"%d" % count): 1 for n in range(KEYS) for count in range(1, 10)}
    for said in ("authorization failed", "a right is missing"):
        assert said not in job.logs().lower()
    backfill(job, secured, tmp_path)


def backfill(job: Engine, secured: Secured, folder: Path) -> None:
    """Count once more what is in the source, with the rights that the page on security adds."""
    source, target = job.config.source_topic, f"again_{job.config.job_name}"
    user = "User:maintainer"
    written = [
        binding("topic", target, "literal", user, operation)
        for operation in ("Create", "Read", "Write", "DescribeConfigs")
    ]
    ids = binding("transactional-id", "backfill_", "prefixed", user, "Write")
    secured.grant([*written, ids, binding("group", "backfill_", "prefixed", user, "Read")])
    pipeline = folder / "again.yaml"
    pipeline.write_text(COUNT)
    places = ("--from", f"topic:{source}", "--to", f"topic:{target}")
    run_as(job, secured, "maintainer", "backfill", pipeline, *places, "--work", folder / "work")
    found = {value for batch in read_committed(job.config, target, 1) for value in batch.values}
    assert b"11" in found


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
