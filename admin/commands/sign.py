"""`pipeline sign`: signs what a job is to run, with the key of config.yaml."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer

from admin.changes import require_consent
from admin.files import ConfigPath
from common.cli import run_command
from common.config import load_config
from common.errors import ConfigError
from common.kafka.deployments import DeploymentEditor, UnsignedPipelineError
from operations.job import connected, read_deployment


@run_command
def sign(
    config: ConfigPath,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is there.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Sign what the job is to run with the first key of control_key_file.

    Needed once when a job that exists gets a key, and before a former key is taken out of the file.
    Without a valid signature, anyone who could write to the pipeline topic may have written what
    is there: look at `pipeline versions` and `pipeline plan` after that.

    Exit codes: 0 done, 1 the answer was no, 2 no key, or nothing to sign, 3 Kafka is not there.
    """
    settings = load_config(config)
    if settings.control_key is None:
        raise ConfigError("config.yaml has no control_key_file: there is no key to sign with")
    admin, source, state = connected(settings), settings, "signed with a key of control_key_file"
    try:
        found = read_deployment(source, admin)
    except UnsignedPipelineError:
        source, state = replace(settings, control_key=None), "not signed with any of its keys"
        found = read_deployment(source, admin)
    if found.wish is None:
        raise ConfigError("this job has no pipeline yet: what `pipeline apply` writes is signed")
    versions = ", ".join(map(str, found.numbers))
    typer.echo(f"version {found.wish.version} is to run, of versions {versions}: {state}")
    if dry_run:
        return
    require_consent("Sign it as it is?", yes=yes)
    with closing(DeploymentEditor(source, admin)) as editor:
        if editor.deployment.wish != found.wish:
            raise ConfigError("it was changed meanwhile: look at it again")
        editor.sign(settings.control_key)
    typer.echo("done: it is signed with the first key")
