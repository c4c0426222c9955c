"""`pipeline topic` on a real topic."""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.cluster.cluster_status import Presence
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.operations.times import shown_time
from kafka_pipeline.streams.schema_registry import SchemaRegistry, avro
from tests.engine import Engine, engine
from tests.in_process import run_pipeline
from tests.schema_registry import standing_in

pytestmark = [pytest.mark.integration]

PIPELINE = """
sources: {{other: {other}}}
processors: [{{id: Forwarder, type: forward, from: [source, other], to: [sink]}}]
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Engine]:
    """A job whose JobManager made the topics; no TaskManager runs."""
    folder, name = tmp_path_factory.mktemp("topics"), f"topic_{os.getpid()}"
    pipeline = PIPELINE.format(other=f"other_{name}")
    with engine(folder, bootstrap_servers, name, pipeline, tm_number=1) as made:
        made.start_job_manager()
        made.wait_until(lambda status: status.job_manager.presence is Presence.UP)
        yield made


def topic(
    job: Engine, command: str, name: str, *options: str, given: str = "", code: int = 0
) -> str:
    return run_pipeline(
        "topic", command, str(job.config_file), name, *options, given=given, code=code
    )


def read(job: Engine, name: str, *options: str) -> list[dict[str, Any]]:
    shown = topic(job, "read", name, "--json", *options)
    return [json.loads(line) for line in shown.splitlines()]


def test_records_are_written_and_read(job: Engine) -> None:
    source = job.config.source_topic
    # Kafka deletes what is older than a week.
    began_ms = int(time.time() * 1000) - 3_600_000
    records = [
        {"key": f"k{n % 7}", "value": f"v{n}", "timestamp_ms": began_ms + n} for n in range(1200)
    ]
    said = topic(job, "write", source, given="\n".join(map(json.dumps, records)))
    assert said == f"1,200 records written to {source}\n"
    found = read(job, source)
    assert len(found) == 1200
    for key in {record["key"] for record in records}:
        own = [each for each in found if each["key"] == key]
        assert len({each["partition"] for each in own}) == 1
        assert [each["value"] for each in own] == [
            record["value"] for record in records if record["key"] == key
        ]
    first = read(job, source, "--partition", "0", "--limit", "3")
    assert [each["offset"] for each in first] == [0, 1, 2]
    # The last offset of each partition is the marker of a transaction, and no record.
    (latest,) = read(job, source, "--partition", "0", "--from", "-1")
    assert latest["value"] == [each for each in found if each["partition"] == 0][-1]["value"]
    assert len(read(job, source, "--from", shown_time(began_ms + 1199))) == 1
    assert "k1  v1" in topic(job, "read", source, "--limit", "1200")


def test_records_with_schemas_are_written_from_json_and_read_as_json(
    job: Engine, tmp_path: Path
) -> None:
    sink, subject = job.config.sink_topic, f"{job.config.sink_topic}-value"
    schema = {"type": "record", "name": "Total", "fields": [{"name": "amount", "type": "int"}]}
    with standing_in() as registry:
        totals = avro(SchemaRegistry(registry.url), subject, json.dumps(schema))
        data = totals.serialize({"amount": 12})
        config = tmp_path / "config.yaml"
        section = f'schema_registry: {{url: "{registry.url}"}}\n'
        config.write_text(job.config_file.read_text() + section)
        line = json.dumps({"value": {"amount": 12}})
        options = (str(config), sink, "--value", "avro")
        run_pipeline("topic", "write", *options, given=line)
        shown = run_pipeline("topic", "read", *options, "--json")
    assert json.loads(shown)["value"] == {"amount": 12}
    (record,) = read(job, sink, "--value", "bytes")
    assert b64decode(record["value"]) == data


def test_a_wrong_line_ends_it_and_says_how_many_were_written(job: Engine) -> None:
    other = f"other_{job.config.job_name}"
    said = topic(job, "write", other, given='{"value": "a"}\n' * 700 + "x\n", code=2)
    assert "line 701: Expecting value" in said
    assert f"500 records written to {other}\n" in said
    assert len(read(job, other)) == 500


@pytest.mark.parametrize(
    ("command", "options", "problem"),
    [
        ("read", ["--from", "yesterday"], '--from: "yesterday" is not a position'),
        ("read", ["--partition", "99"], "has no partition 99"),
        ("read", ["--value", "xml"], 'there is no serde "xml"'),
        ("write", ["--key", "xml"], 'there is no serde "xml"'),
    ],
)
def test_wrong_arguments_are_named(
    job: Engine, command: str, options: list[str], problem: str
) -> None:
    assert problem in topic(job, command, job.config.source_topic, *options, code=2)


def test_topics_of_the_engine_are_not_written(job: Engine) -> None:
    for name in (job.names.heartbeat, job.names.pipeline):
        said = topic(job, "write", name, given='{"value": "x"}', code=2)
        assert "nobody else may write to it" in said
    assert "there is no topic" in topic(job, "read", "nothing", code=2)


def test_topics_of_the_user_are_made_and_changed(tmp_path: Path, bootstrap_servers: str) -> None:
    name = f"made_{os.getpid()}"
    other = f"other_{name}"
    pipeline = PIPELINE.format(other=other) + "# on_error is fail: there are no dead letters\n"
    made = Engine(tmp_path, bootstrap_servers, name, pipeline, tm_number=1)
    admin, source, sink = Admin(made.config), made.config.source_topic, made.config.sink_topic
    files = [str(made.config_file), str(made.config_file.with_name("pipeline.yaml"))]

    def run(command: str, *words: str) -> str:
        return run_pipeline("topic", command, *files, *words)

    planned = run_pipeline("plan", *files)
    assert f"`pipeline topic create` makes them before):\n  {source}\n  {other}\n" in planned
    assert f"{source}: would be made, 2 partitions" in run("create", "--dry-run")
    assert admin.partition_counts([source, other, sink]) == {}
    said = run("create", source, "--partitions", "3", "--config", "retention.ms=86400000")
    assert said == (f"{source}: made, 3 partitions, replication factor 1, retention.ms=86400000\n")
    run("create")
    assert run("create") == "nothing is missing\n"
    assert admin.partition_counts([source, other, sink]) == {source: 3, other: 2, sink: 2}
    run("alter", other, "--partitions", "4", "--config", "retention.ms=1000")
    run("alter", source, "--config", "retention.ms=")
    assert admin.partition_counts([other]) == {other: 4}
    settings = admin.topic_settings([source, other])
    assert settings[other]["retention.ms"] == "1000"
    assert settings[source]["retention.ms"] != "86400000"
    with pytest.raises(ConfigError, match="Kafka refuses to change topic"):
        admin.alter_settings(sink, {"retention.ms": "soon"})
