"""`pipeline acls`: which rights each role gets, and how they are written out."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from kafka_pipeline.admin.acls.rights import Acl, AclOperation, ResourceKind, Role, acls_of
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.in_process import invoke

CONFIG = """
server_ip: 127.0.0.1
server_port: 9092
job_name: shop
tm_number: 2
parallelism: 2
replication_factor: 1
source_topic: orders
sink_topic: totals
"""
PIPELINE = """
- {id: Adder, type: sum, to: [Counter], on_error: dead_letter}
- {id: Counter, type: count, to: [sink]}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    config, pipeline = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(CONFIG)
    pipeline.write_text(PIPELINE)
    return str(config), str(pipeline)


@pytest.fixture
def acls(files: tuple[str, str]) -> tuple[Acl, ...]:
    config = load_config(Path(files[0]))
    return acls_of(config, load_pipeline(Path(files[1]), config))


def run(files: tuple[str, str], *options: str) -> Result:
    return invoke("acls", *files, *options)


def of(acls: tuple[Acl, ...], role: Role, kind: ResourceKind) -> dict[str, set[AclOperation]]:
    found: dict[str, set[AclOperation]] = {}
    for acl in acls:
        if (acl.role, acl.resource.kind) == (role, kind):
            found.setdefault(acl.resource.name, set()).add(acl.operation)
    return found


def test_task_managers_read_inputs_and_write_outputs(acls: tuple[Acl, ...]) -> None:
    topics = of(acls, Role.TASKMANAGER, ResourceKind.TOPIC)
    written = {AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS}
    assert topics["orders"] == {AclOperation.READ}
    assert topics["Adder_Counter_shop"] == {AclOperation.READ, *written}
    assert topics["state_topic_Counter_shop"] == {AclOperation.READ, *written}
    assert topics["Adder_dead_letter_shop"] == written
    assert topics["totals"] == written
    assert "Counter_dead_letter_shop" not in topics


def test_task_managers_can_neither_command_nor_make_topics(acls: tuple[Acl, ...]) -> None:
    topics = of(acls, Role.TASKMANAGER, ResourceKind.TOPIC)
    for control in ("threads_jm_topic_shop", "processors_topic_0_shop", "processors_topic_1_shop"):
        assert topics[control] == {AclOperation.READ}
    assert topics["pipeline_topic_shop"] == {AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS}
    assert not [name for name, allowed in topics.items() if AclOperation.CREATE in allowed]
    assert of(acls, Role.TASKMANAGER, ResourceKind.TRANSACTIONAL_ID) == {
        "shop/task/": {AclOperation.WRITE}
    }


def test_only_the_prefix_of_tasks_is_a_prefix(acls: tuple[Acl, ...]) -> None:
    prefixes = {(acl.role, acl.resource.name) for acl in acls if acl.resource.is_prefix}
    assert prefixes == {
        (Role.JOBMANAGER, "shop/task/"),
        (Role.TASKMANAGER, "shop/task/"),
        (Role.MAINTAINER, "shop/task/"),
        (Role.MAINTAINER, "shop/tool/"),
    }


def test_maintainers_may_all_that_operators_may_and_renew_what_the_job_has(
    acls: tuple[Acl, ...],
) -> None:
    """A state topic is emptied by deleting it and making it again."""
    topics = of(acls, Role.MAINTAINER, ResourceKind.TOPIC)
    for name, allowed in of(acls, Role.OPERATOR, ResourceKind.TOPIC).items():
        assert allowed - {AclOperation.DESCRIBE} <= topics[name]
    renewed = {AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE}
    for own in ("Adder_Counter_shop", "state_topic_Counter_shop", "Adder_dead_letter_shop"):
        assert renewed <= topics[own]
    assert AclOperation.DELETE not in topics["orders"] | topics["totals"]
    changes = {AclOperation.ALTER, AclOperation.ALTER_CONFIGS}
    for of_user in ("orders", "totals", "Adder_dead_letter_shop"):
        assert changes <= topics[of_user]
    assert not changes & (topics["Adder_Counter_shop"] | topics["state_topic_Counter_shop"])
    groups = of(acls, Role.MAINTAINER, ResourceKind.GROUP)
    assert groups["processors_Counter_shop"] == {AclOperation.READ, AclOperation.DELETE}


def test_writers_and_readers_get_the_ends_of_the_pipeline_alone(acls: tuple[Acl, ...]) -> None:
    assert of(acls, Role.WRITER, ResourceKind.TOPIC) == {"orders": {AclOperation.WRITE}}
    assert of(acls, Role.READER, ResourceKind.TOPIC) == {"totals": {AclOperation.READ}}


def test_no_right_is_there_twice_or_implied_by_another(acls: tuple[Acl, ...]) -> None:
    assert len(set(acls)) == len(acls)
    for acl in acls:
        if acl.operation is AclOperation.DESCRIBE:
            others = of(acls, acl.role, acl.resource.kind)[acl.resource.name]
            assert not others & {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE}


def test_every_form_has_every_right(files: tuple[str, str], acls: tuple[Acl, ...]) -> None:
    rows = json.loads(run(files, "--json").stdout)
    assert len(rows) == len(acls)
    script = run(files, "--format", "kafka-acls").stdout
    assert sum(
        shlex.split(line, comments=True).count("--operation") for line in script.splitlines()
    ) == len(acls)
    resources = json.loads(run(files, "--format", "terraform").stdout)["resource"]["kafka_acl"]
    assert len(resources) == len(acls)
    users = list(yaml.safe_load_all(run(files, "--format", "strimzi", "--cluster", "k").stdout))
    rules = [rule for user in users for rule in user["spec"]["authorization"]["acls"]]
    assert sum(len(rule["operations"]) for rule in rules) == len(acls)
    assert {user["metadata"]["name"] for user in users} == set(Role)


def test_users_may_have_other_names(files: tuple[str, str]) -> None:
    said = run(files, "--role", "writer", "--user", "writer=web shop", "--format", "kafka-acls")
    *_, line = said.stdout.splitlines()
    words = shlex.split(line)
    assert words[words.index("--allow-principal") + 1] == "User:web shop"
    assert words[-2:] == ["--operation", "Write"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user", "boss=x"], "give ROLE=NAME"),
        (["--format", "strimzi"], "--cluster"),
        (["--cluster", "k"], "--cluster"),
        (["--json", "--format", "terraform"], "exclude each other"),
    ],
)
def test_wrong_arguments(files: tuple[str, str], options: list[str], said: str) -> None:
    result = run(files, *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_rights_for_a_rehearsal_are_on_the_shadow_and_what_it_publishes(
    files: tuple[str, str],
) -> None:
    rows = json.loads(run(files, "--rehearsal", "--json").stdout)
    assert {row["role"] for row in rows} == {"maintainer"}
    found = {(row["kind"], row["name"], row["operation"]) for row in rows}
    sink = "rehearsal-of-totals_shop-rehearsal"
    for operation in ("Create", "Read", "Write", "Delete"):
        assert ("topic", sink, operation) in found
        assert ("topic", "pipeline_topic_shop-rehearsal", operation) in found
    assert ("transactional-id", "shop-rehearsal/task/", "Write") in found
    assert ("group", "processors_Adder_shop-rehearsal", "Delete") in found
    topics = {name for kind, name, _ in found if kind == "topic"}
    others = {name for name in topics if not name.endswith("_shop-rehearsal")}
    assert others == {"orders", "rehearsal_topic_shop"}
    published = {row["operation"] for row in rows if row["name"] == "rehearsal_topic_shop"}
    assert published == {"Create", "Write", "Delete"}


def test_a_jobmanager_with_a_console_reads_what_rehearsals_publish(
    files: tuple[str, str], acls: tuple[Acl, ...]
) -> None:
    topic = "rehearsal_topic_shop"
    assert topic not in of(acls, Role.JOBMANAGER, ResourceKind.TOPIC)
    config = replace(load_config(Path(files[0])), console_port=9470)
    with_console = acls_of(config, load_pipeline(Path(files[1]), config))
    assert of(with_console, Role.JOBMANAGER, ResourceKind.TOPIC)[topic] == {AclOperation.READ}


def test_topics_that_only_a_function_knows_are_said_to_be_left_out(files: tuple[str, str]) -> None:
    config, pipeline = map(Path, files)
    config.write_text(f"{CONFIG}modules: [tests.user_code.topologies]\n")
    text = "- {id: W, type: topology, builder: 'tests.user_code.topologies:by_size', config: {%s}}"
    pipeline.write_text(text % "orders: source")
    left_out = "W-Orders writes what its function chooses: there, grant the TaskManagers Write"
    assert left_out in run(files).stderr
    pipeline.write_text(text % "orders: source, topics: [large, small]")
    assert not run(files).stderr
