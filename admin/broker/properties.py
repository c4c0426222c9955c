"""The settings of a local broker, as the text of its server.properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.broker.ports import LOOPBACK

_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One broker of a local cluster, which is also one of its controllers."""

    id: int
    """Its number in the cluster, from 1."""
    port: int
    """The port for clients and other brokers."""
    controller_port: int
    """The port for the other controllers."""
    tls_port: int | None = None
    """The port for clients with certificates, if the cluster is secured."""


def server_properties(
    node: BrokerNode,
    nodes: Sequence[BrokerNode],
    data_dir: Path,
    extra: Mapping[str, str | int] = {},
) -> str:
    """Return the server.properties of one node of the cluster that `nodes` form.

    `extra` settings override the ones made here.

    Kafka's internal topics have three replicas, or one per broker if there are fewer brokers. From
    three brokers on, a write needs two replicas. With fewer it needs one: otherwise the loss of a
    single broker would block writes.
    """
    voters = ",".join(f"{n.id}@{LOOPBACK}:{n.controller_port}" for n in nodes)
    replicas = min(3, len(nodes))
    in_sync_replicas = 2 if replicas == 3 else 1
    settings: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": (
            f"PLAINTEXT://{LOOPBACK}:{node.port},CONTROLLER://{LOOPBACK}:{node.controller_port}"
        ),
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_dir),
        # A mistyped topic name should be an error, not a new topic.
        "auto.create.topics.enable": "false",
        # Kafka would delete records whose own time is a week ago, read or not, and the offsets of
        # a job that was not run for a week.
        "log.retention.ms": -1,
        "offsets.retention.minutes": 2**31 - 1,
        "min.insync.replicas": in_sync_replicas,
        # Kafka's internal topics get few partitions: the default of 50 makes every start slow.
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync_replicas,
        "share.coordinator.state.topic.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync_replicas,
        # Small segments are compacted soon, so coordinators have little to load when a broker
        # starts. A broker that was killed is elected leader of its partitions twice when it comes
        # back, some 7 s apart. If it is still loading from the first time, it gives wrong answers
        # (see docs/reliability.md). Transaction markers are kept as long as tombstones.
        "offsets.topic.segment.bytes": 1_048_576,
        "transaction.state.log.segment.bytes": 1_048_576,
        "log.cleaner.delete.retention.ms": 3_600_000,
        # How often the coordinator looks for transactions past their transaction.timeout.ms; a
        # dead task's open transaction hides the records after it for up to this much longer.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2_000,
        # A group with a single consumer need not wait three seconds for others to join.
        "group.initial.rebalance.delay.ms": 0,
    }
    return format_properties({**settings, **extra})


def security_properties(node: BrokerNode, secrets: Path) -> dict[str, str | int]:
    """Return the settings that secure a node: nobody can connect without a name, nor do anything.

    Clients have two listeners. One wants a password (SASL/SCRAM), the other one a certificate,
    whose common name is the name of the user. Brokers and controllers know each other by
    certificates: SCRAM does not work between controllers, as they are what knows the passwords.

    Args:
        node: one that has a `tls_port`.
        secrets: the folder of the certificates.
    """
    clients, tls = f"CLIENTS://{LOOPBACK}:{node.port}", f"TLS://{LOOPBACK}:{node.tls_port}"
    return {
        "listeners": f"{clients},{tls},CONTROLLER://{LOOPBACK}:{node.controller_port}",
        "advertised.listeners": f"{clients},{tls}",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,TLS:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "TLS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{_LOGIN} required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(secrets / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secrets / "ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:broker;User:admin",
    }


def admin_properties(secrets: Path) -> str:
    """Return the settings with which Kafka's own tools connect to the TLS port as `admin`."""
    return format_properties(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(secrets / "admin.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(secrets / "ca.pem"),
        }
    )


def format_properties(settings: Mapping[str, str | int]) -> str:
    """Format settings as a Java properties file, which is Latin-1 with backslash escapes."""
    lines = (f"{key}={_escape(str(value))}\n" for key, value in settings.items())
    return "".join(lines)


def _escape(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)
