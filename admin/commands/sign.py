"""`pipeline sign`: signs what a job is to run, with the key of config.yaml."""

from __future__ import annotations

import typer

from kafka_pipeline.admin.arguments import ConfigPath, DryRun, Yes
from kafka_pipeline.admin.terminal import require_consent
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.operations.sign import found_to_sign


@run_command
def sign(
    config: ConfigPath,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Sign the job's pipeline and desired state with the first key of control_key_file.

    Needed once when an existing job gets a key, and before you remove a former key from the file.
    Unsigned content may have been written by anyone who could write to the pipeline topic: check
    `pipeline versions` and `pipeline plan` afterwards.

    Exit codes: 0 done, 1 the answer was no, 2 no key, or nothing to sign, 3 Kafka does not answer.
    """
    found = found_to_sign(load_config(config))
    numbers = ", ".join(map(str, found.versions))
    state = (
        "signed with a key of control_key_file" if found.is_signed else "not signed with its key"
    )
    typer.echo(f"version {found.wish.version} is to run, of versions {numbers}: {state}")
    if dry_run:
        return
    require_consent("Sign it as it is?", yes=yes)
    found.carry_out()
    typer.echo("done: it is signed with the first key")
