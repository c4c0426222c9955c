"""`pipeline plan`: shows what a pipeline.yaml would change about a job, and changes nothing."""

from __future__ import annotations

import typer

from kafka_pipeline.admin.arguments import AsJson, ConfigPath, PipelinePath
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.plans import changed_code, overview
from kafka_pipeline.admin.registry_questions import RegistryQuestions
from kafka_pipeline.admin.terminal import show, show_json
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.deployment.deploy import look_at, ways_out
from kafka_pipeline.deployment.job import connected
from kafka_pipeline.deployment.kept_state import KeptState


@run_command
def plan(
    config: ConfigPath,
    pipeline: PipelinePath,
    as_json: AsJson = False,
) -> None:
    """Show what would change if the job ran this pipeline: tasks, topics and state.

    Begins with the lines of the file that differ from the running version. Also names your modules
    whose code here differs from what TaskManagers run, and asks the schema registry, if it answers,
    whether it has the subjects and accepts the schemas. Starts Spark for a few seconds if a query
    with state has changed, or if its results go to a table or are Avro: its columns are compared
    with those of the table or the schema.

    Exit codes: 0 whatever would change, 2 the pipeline cannot run in this job, 3 Kafka does not
    answer.
    """
    settings, loaded = load_files(config, pipeline, registry=RegistryQuestions(), asks_spark=True)
    admin = connected(settings)
    _, found, deployment = look_at(settings, admin, loaded, KeptState(settings, admin))
    code = changed_code(settings, deployment, loaded)
    if as_json:
        current = deployment.current.number if deployment.current else None
        changed = {"code_changed": [each.to_json() for each in code]}
        show_json({"version": current, **found.to_json(), **changed})
        return
    show(overview(found, deployment.current, pipeline.read_text("utf-8"), code))
    if found.impossible:
        typer.echo(f"\n{ways_out(found)}")
