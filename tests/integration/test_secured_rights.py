"""A task without one of the rights of `pipeline acls` says which, and goes on once it has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding  # type: ignore[attr-defined]
from structlog.testing import capture_logs

from kafka_pipeline.admin.acls.rights import Acl, AclOperation, ResourceKind, Role, acls_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.control import CommandWriter, ControlReader, ReportWriter
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import CountSpec
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import CONTROL_GROUP
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.secured import Secured, binding
from tests.tasks import Job, Record, Thread, step_until

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = "- {id: P, type: count, to: [sink], on_error: dead_letter}\n"
TASK = TaskId("P", 0)
RIGHTS = {
    "input": ["Read"],
    "output": ["DescribeConfigs", "Write"],
    "state": ["DescribeConfigs", "Read", "Write"],
    "dead letters": ["DescribeConfigs", "Write"],
    "group": ["Read"],
    "proof of the coordinator": ["Read"],
    "transactions": ["Write"],
}
"""The rights of a task, by what they are on."""


@pytest.fixture
def job(tmp_path: Path, secured: Secured) -> Iterator[Job]:
    """A job whose tasks are a TaskManager's, and whose topics are the administrator's."""
    made = Job(tmp_path, secured.servers, secured.kafka("admin"))
    made.config = replace(
        made.config, kafka=secured.kafka("taskmanager"), transaction_timeout_ms=2_000
    )
    made.admin = Admin(made.config)
    yield made
    made.close()


def names(job: Job) -> dict[str, str]:
    """Return the resources of the task by what they are for it."""
    return {
        "input": job.config.source_topic,
        "output": job.config.sink_topic,
        "state": job.names.state("P"),
        "dead letters": job.names.dead_letter("P"),
        "group": job.names.consumer_group("P"),
        "proof of the coordinator": job.names.coordinator_proof[0],
        "transactions": job.names.task_ids,
    }


def rights(job: Job, folder: Path) -> dict[tuple[str, str], AclBinding]:
    """Return the rights of the task that are printed, by what they are on and what they allow."""
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE)
    known = {name: on for on, name in names(job).items()}
    found = acls_of(job.config, load_pipeline(file, job.config))
    return {
        (known[acl.resource.name], acl.operation): _binding(acl)
        for acl in found
        if acl.role is Role.TASKMANAGER and acl.resource.name in known
    }


def _binding(acl: Acl) -> AclBinding:
    pattern = "prefixed" if acl.resource.is_prefix else "literal"
    return binding(acl.resource.kind, acl.resource.name, pattern, f"User:{acl.role}", acl.operation)


def named(job: Job, on: str, operation: str) -> str:
    """Return what a task says that it misses."""
    if on == "transactions":
        return f"Write of transactional id {job.names.transactional_id(TASK)}"
    kind = "group" if on == "group" else "topic"
    return f"{operation} of {kind} {names(job)[on]}"


def test_these_are_the_rights_of_a_task(job: Job, tmp_path: Path) -> None:
    """Those of the control topics are others' concern."""
    found: dict[str, list[str]] = {on: [] for on in RIGHTS}
    for on, operation in rights(job, tmp_path):
        found[on].append(operation)
    assert {on: sorted(operations) for on, operations in found.items()} == RIGHTS


@pytest.mark.parametrize(
    ("on", "operation"), [(on, each) for on, operations in RIGHTS.items() for each in operations]
)
def test_task_without_a_right_says_so_and_goes_on_with_it(
    job: Job, secured: Secured, tmp_path: Path, on: str, operation: str
) -> None:
    """Another owner had all rights: there is state to restore."""
    all_rights = rights(job, tmp_path)
    secured.grant([*all_rights.values()])
    replica = job.replica(CountSpec(), OnError.DEAD_LETTER)
    job.write(Record(b"k", b"1", 1))
    former, thread = Thread(job, 0), Thread(job, 1)
    former.assign(replica)
    step_until(lambda: job.committed() == 1, former)
    former.close()
    secured.revoke([all_rights[on, operation]])
    job.write(Record(None, b"1", 2), Record(b"k", b"1", 3))
    thread.assign(replica)
    thread.step()
    step_until(lambda: thread.status(TASK).state is TaskState.FAILED, thread)
    reason = thread.status(TASK).reason
    assert f"(a right is missing, {named(job, on, operation)} (`pipeline acls`" in reason
    secured.grant([all_rights[on, operation]])
    thread.revoke(TASK)
    step_until(lambda: not thread.thread.tasks, thread)
    thread.assign(replica)
    step_until(lambda: job.committed() == 3, thread)
    job.config = replace(job.config, kafka=secured.kafka("admin"))
    assert [record.value for record in job.read(job.config.sink_topic)] == [b"1", b"2"]
    thread.close()


# Daemons and operators.


PARTS = "- {id: P, type: sum, to: [Q], on_error: dead_letter}\n- {id: Q, type: count, to: [sink]}\n"


@dataclass(frozen=True)
class User:
    """Somebody with a role, who asks Kafka for what the daemons and commands ask it for."""

    config: Config
    readable: str
    """A topic that this role may read."""

    def use(self, acl: Acl) -> str:
        """Do what needs a right; return what is said."""
        name, admin = acl.resource.name, Admin(self.config)
        with capture_logs() as logs:
            try:
                match acl.resource.kind, acl.operation:
                    case ResourceKind.TOPIC, AclOperation.CREATE | AclOperation.DESCRIBE:
                        admin.ensure_topics([TopicSpec(name, 1, 1)])
                    case ResourceKind.TOPIC, AclOperation.DESCRIBE_CONFIGS:
                        admin.topic_settings([name])
                    case ResourceKind.TOPIC, AclOperation.DELETE:
                        admin.delete_before({(name, 0): 0})
                    case ResourceKind.TOPIC, AclOperation.READ:
                        self._read(name, logs)
                    case ResourceKind.TOPIC, AclOperation.WRITE:
                        self._write(name, logs)
                    case ResourceKind.GROUP, _ if name == CONTROL_GROUP:
                        self._read(self.readable, logs)
                    case ResourceKind.GROUP, _:
                        with closing(PartitionReader(self.config, name)) as reader:
                            reader.committed([(self.readable, 0)], 10)
                    case _:
                        id_ = f"{name}P_0" if acl.resource.is_prefix else name
                        CommandWriter(self.config, id_)
            except (EngineError, PipelineError) as error:
                return str(error)
        return " ".join(str(log.get("reason")) for log in logs)

    def _read(self, topic: str, logs: list[Any]) -> None:
        with closing(ControlReader(self.config, [topic])) as reader:
            for _ in takewhile(lambda _: not logs, range(100)):
                reader.read(0.1)

    def _write(self, topic: str, logs: list[Any]) -> None:
        writer = ReportWriter(self.config)
        writer.write([ControlRecord(topic, b"", b"")])
        for _ in takewhile(lambda _: not logs, range(100)):
            writer.close(0.1)


def said_of(acl: Acl) -> str:
    """Return how an error names a right."""
    on, name = acl.resource.kind.replace("-", " "), acl.resource.name
    is_seen = (
        acl.resource.kind is not ResourceKind.TOPIC or acl.operation is not AclOperation.DESCRIBE
    )
    if acl.operation is AclOperation.CREATE or (acl.role is Role.TASKMANAGER and not is_seen):
        # Kafka does not say which of the two it is.
        return f"topic {name} is missing, or Describe of it is not allowed; it cannot be made"
    return f"a right is missing, {acl.operation} of {on} {name}{'P_0' * acl.resource.is_prefix} "


@pytest.mark.parametrize("role", [Role.JOBMANAGER, Role.TASKMANAGER, Role.OPERATOR])
def test_each_right_of_a_role_is_named_where_it_is_missing(
    secured: Secured, tmp_path: Path, role: Role
) -> None:
    """The rights on what tasks read and write are above."""
    config = Config(
        server_ip="127.0.0.1",
        server_port=1,
        job_name=f"{role}_{os.getpid()}",
        tm_number=1,
        parallelism=1,
        replication_factor=1,
        source_topic=f"source_{role}",
        sink_topic=f"sink_{role}",
        kafka=secured.kafka(role),
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(PARTS)
    pipeline = load_pipeline(file, config)
    specs = (*control_topics(config), *pipeline.data_topics(1))
    control = {spec.name for spec in control_topics(config)}
    acls = [acl for acl in acls_of(config, pipeline) if acl.role is role]
    if role is Role.TASKMANAGER:
        of_tasks = {topic.name for topic in specs} - control
        of_tasks |= {config.topic_names.consumer_group(each) for each in "PQ"}
        acls = [acl for acl in acls if acl.resource.name not in of_tasks]
    secured.grant([_binding(acl) for acl in acls])
    readable = next(a.resource.name for a in acls if a.operation is AclOperation.READ)
    user = User(config, readable)
    acls.sort(key=lambda acl: acl.operation is not AclOperation.CREATE)
    is_made = False
    for acl in acls:
        if acl.operation is not AclOperation.CREATE and not is_made:
            admin = Admin(replace(config, kafka=secured.kafka("admin")))
            admin.ensure_topics(specs)
            admin.topic_ids([spec.name for spec in specs])
            is_made = True
        secured.revoke([_binding(acl)])
        said = user.use(acl)
        assert said_of(acl) in said, f"without {acl}: {said}"
        assert secured.kafka(role)["sasl.password"] not in said
        secured.grant([_binding(acl)])
