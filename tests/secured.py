"""A secured Kafka for tests: its users, and the rights that they have."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_pipeline.admin.broker.local_cluster import LocalCluster, delete_data
from kafka_pipeline.admin.broker.secrets_folder import FOLDER

_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Alter": AclOperation.ALTER,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
_PATTERNS = {"literal": ResourcePatternType.LITERAL, "prefixed": ResourcePatternType.PREFIXED}


@dataclass(frozen=True)
class Secured:
    """A secured Kafka that runs."""

    servers: str
    secrets: Path
    admin: AdminClient

    def kafka(self, user: str, form: str = "yaml") -> dict[str, Any]:
        """Return the section `kafka:` of a user, with the password or (`tls.yaml`) certificate."""
        return _section(self.secrets / f"{user}.{form}")

    def grant(self, acls: Sequence[AclBinding]) -> None:
        """Give rights, and wait until the broker knows them."""
        for answer in self.admin.create_acls(list(acls)).values():
            answer.result(10)
        for acl in acls:
            while not self.admin.describe_acls(only(acl)).result(10):
                time.sleep(0.01)

    def revoke(self, acls: Sequence[AclBinding]) -> None:
        """Take rights away, and wait until the broker knows it."""
        filters = list(map(only, acls))
        for answer in self.admin.delete_acls(filters).values():
            answer.result(10)
        for each in filters:
            while self.admin.describe_acls(each).result(10):
                time.sleep(0.01)


@contextmanager
def secured_cluster(directory: Path) -> Iterator[Secured]:
    """Run a secured Kafka on free ports; nothing stays of it."""
    cluster = LocalCluster(directory, is_secure=True, is_short_lived=True)
    cluster.start()
    try:
        secrets = directory / FOLDER
        admin = AdminClient(_section(secrets / "admin.tls.yaml"))
        yield Secured(cluster.bootstrap_servers, secrets, admin)
    finally:
        cluster.stop()
        delete_data(directory)


def bindings(printed: str) -> list[AclBinding]:
    """Return what `pipeline acls --json` has printed, for the admin client."""
    return [
        binding(row["kind"], row["name"], row["pattern"], f"User:{row['user']}", row["operation"])
        for row in json.loads(printed)
    ]


def binding(kind: str, name: str, pattern: str, principal: str, operation: str) -> AclBinding:
    """Return a right for the admin client; the arguments are those of `pipeline acls --json`."""
    return AclBinding(
        _KINDS[kind],
        name,
        _PATTERNS[pattern],
        principal,
        "*",
        _OPERATIONS[operation],
        AclPermissionType.ALLOW,
    )


def only(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _section(file: Path) -> dict[str, Any]:
    section: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())
    return section["kafka"]
