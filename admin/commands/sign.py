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
    """Sign what the job is to run with the first key of control_key_file.

    Needed once when a job that exists gets a key, and before a former key is taken out of the file.
    Without a valid signature, anyone who could write to the pipeline topic may have written what
    is there: look at `pipeline versions` and `pipeline plan` after that.

    Exit codes: 0 done, 1 the answer was no, 2 no key, or nothing to sign, 3 Kafka is not there.
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
