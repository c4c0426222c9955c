"""ACLs as commands of Kafka, for Terraform, and for Strimzi."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby

from kafka_pipeline.admin.acls.rights import Acl, Resource, ResourceKind, Role

_TERRAFORM_KINDS = {
    ResourceKind.TOPIC: "Topic",
    ResourceKind.GROUP: "Group",
    ResourceKind.TRANSACTIONAL_ID: "TransactionalID",
}
_STRIMZI_KINDS = {
    ResourceKind.TOPIC: "topic",
    ResourceKind.GROUP: "group",
    ResourceKind.TRANSACTIONAL_ID: "transactionalId",
}


def kafka_acls(acls: Sequence[Acl], users: Mapping[Role, str], servers: str) -> str:
    """Return a shell script with a call of Kafka's tool for each resource of each role.

    The script takes the file with the login of the tool as its argument.
    """
    lines = ["#!/bin/sh", "# Usage: sh FILE ADMIN.properties", "set -eu"]
    for (role, resource), group in groupby(acls, lambda acl: (acl.role, acl.resource)):
        words = [f"User:{users[role]}", f"--{resource.kind}", resource.name]
        allowed = " ".join(f"--operation {acl.operation}" for acl in group)
        pattern = " --resource-pattern-type prefixed" if resource.is_prefix else ""
        lines.append(
            f'kafka-acls.sh --bootstrap-server {shlex.quote(servers)} --command-config "$1" --add '
            f"--allow-principal {' '.join(map(shlex.quote, words))}{pattern} {allowed}"
        )
    return "\n".join(lines)


def terraform(acls: Sequence[Acl], users: Mapping[Role, str]) -> str:
    """Return resources of the provider Mongey/kafka, in the JSON form of Terraform."""
    resources = {}
    for number, acl in enumerate(acls):
        resources[f"{acl.role}_{number}"] = {
            "resource_name": acl.resource.name,
            "resource_type": _TERRAFORM_KINDS[acl.resource.kind],
            "resource_pattern_type_filter": "Prefixed" if acl.resource.is_prefix else "Literal",
            "acl_principal": f"User:{users[acl.role]}",
            "acl_host": "*",
            "acl_operation": acl.operation,
            "acl_permission_type": "Allow",
        }
    return json.dumps({"resource": {"kafka_acl": resources}}, indent=2)


def strimzi(acls: Sequence[Acl], users: Mapping[Role, str], cluster: str) -> str:
    """Return the `KafkaUser`s of a Strimzi cluster, as documents of JSON, which is YAML too."""
    documents = []
    for role, group in groupby(acls, lambda acl: acl.role):
        by_resource = groupby(group, lambda acl: acl.resource)
        rules = [_rule(resource, [each.operation for each in of]) for resource, of in by_resource]
        documents.append(
            {
                "apiVersion": "kafka.strimzi.io/v1",
                "kind": "KafkaUser",
                "metadata": {"name": users[role], "labels": {"strimzi.io/cluster": cluster}},
                "spec": {
                    "authentication": {"type": "scram-sha-512"},
                    "authorization": {"type": "simple", "acls": rules},
                },
            }
        )
    return "\n---\n".join(json.dumps(document, indent=2) for document in documents)


def _rule(resource: Resource, operations: Sequence[str]) -> dict[str, object]:
    return {
        "resource": {
            "type": _STRIMZI_KINDS[resource.kind],
            "name": resource.name,
            "patternType": "prefix" if resource.is_prefix else "literal",
        },
        "operations": list(operations),
        "host": "*",
    }
