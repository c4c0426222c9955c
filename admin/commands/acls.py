"""`pipeline acls`: the smallest rights that the roles around a job need in Kafka."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from kafka_pipeline.admin.acls.formats import kafka_acls, strimzi, terraform
from kafka_pipeline.admin.acls.rights import Acl, Role, acls_of, rehearsal_acls
from kafka_pipeline.admin.arguments import AsJson, ConfigPath, PipelinePath
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.terminal import show, show_json
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import one_of
from kafka_pipeline.operations.rehearsal.shadow import shadow_config, shadow_pipeline
from kafka_pipeline.streams.pipeline.load import load_pipeline


class Form(StrEnum):
    """A tool that can make the ACLs."""

    KAFKA_ACLS = "kafka-acls"
    TERRAFORM = "terraform"
    STRIMZI = "strimzi"


@run_command
def acls(
    config: ConfigPath,
    pipeline: PipelinePath,
    roles: Annotated[
        list[Role] | None,
        typer.Option("--role", help="Only the rights of this role; may be repeated."),
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            metavar="ROLE=NAME",
            help="The user of a role, if its name is different; may be repeated.",
        ),
    ] = None,
    form: Annotated[Form | None, typer.Option("--format", help="Write it for a tool.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME", help="With --format strimzi: the Kafka resource."
        ),
    ] = None,
    rehearsal: Annotated[
        bool,
        typer.Option(
            "--rehearsal", help="Instead: what a maintainer needs in addition to rehearse PIPELINE."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write out the ACLs with which JobManager, TaskManagers and people can work with a job.

    Nothing is changed, and Kafka is not asked. Topics that the patterns of sources match, or that
    only a function knows, are left out: a message on stderr names the processors.

    Exit codes: 0 done, 2 wrong arguments or files.
    """
    if as_json and form:
        raise ConfigError("--json and --format exclude each other")
    if (form is Form.STRIMZI) is (cluster is None):
        raise ConfigError("--format strimzi and --cluster belong together: give both, or neither")
    settings, loaded = load_files(config, pipeline)
    if rehearsal:
        shadow = shadow_config(settings)
        its = shadow_pipeline(load_pipeline(pipeline, shadow), settings)
        wanted = rehearsal_acls(settings, shadow, its)
    else:
        wanted = acls_of(settings, loaded)
    given = {role: role.value for role in Role} | _users(named or [])
    found = [acl for acl in wanted if not roles or acl.role in roles]
    _say_what_is_left_out(loaded)
    match form:
        case Form.KAFKA_ACLS:
            typer.echo(kafka_acls(found, given, settings.bootstrap_servers))
        case Form.TERRAFORM:
            typer.echo(terraform(found, given))
        case Form.STRIMZI:
            assert cluster is not None
            typer.echo(strimzi(found, given, cluster))
        case None if as_json:
            show_json(_as_json(found, given))
        case None:
            show(_as_table(found, given))


def _say_what_is_left_out(pipeline: Pipeline) -> None:
    for each in pipeline.processors:
        if each.patterns:
            patterns = ", ".join(pattern.pattern for pattern in each.patterns)
            print(
                f"{each.id} reads what {patterns} matches: there, grant the JobManager "
                "DescribeConfigs, and the TaskManagers Read",
                file=sys.stderr,
            )
        if each.chooses_topics:
            print(
                f"{each.id} writes what its function chooses: there, grant the TaskManagers Write "
                "and DescribeConfigs, or name the topics by `topics`, where the function is given",
                file=sys.stderr,
            )


def _as_json(acls: Sequence[Acl], users: Mapping[Role, str]) -> list[dict[str, object]]:
    return [
        {
            "role": acl.role,
            "user": users[acl.role],
            "kind": acl.resource.kind,
            "name": acl.resource.name,
            "pattern": "prefixed" if acl.resource.is_prefix else "literal",
            "operation": acl.operation,
        }
        for acl in acls
    ]


def _as_table(acls: Sequence[Acl], users: Mapping[Role, str]) -> Table:
    table = Table("user", "right", "on", "name")
    for acl in acls:
        name = f"{acl.resource.name}{'*' if acl.resource.is_prefix else ''}"
        table.add_row(users[acl.role], acl.operation, acl.resource.kind, name)
    return table


def _users(given: list[str]) -> dict[Role, str]:
    """Read the arguments ROLE=NAME. Raises `ConfigError` for one that is not of that form."""
    found = {}
    for argument in given:
        role, _, name = argument.partition("=")
        if role not in list(Role) or not name:
            raise ConfigError(f"--user {argument}: give ROLE=NAME, where ROLE is {one_of(Role)}")
        found[Role(role)] = name
    return found
