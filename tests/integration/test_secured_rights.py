"""A task without one of the rights of `pipeline acls` says which, and goes on once it has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AclBinding  # type: ignore[attr-defined]

from admin.acls.rights import Acl, Role, acls_of
from common.kafka.admin import Admin
from common.processors import OnError
from common.specs import CountSpec
from common.status import TaskState
from common.tasks import TaskId
from streams.pipeline.load import load_pipeline
from tests.secured import Secured, binding, secured_cluster
from tests.tasks import Job, Record, Thread, step_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PIPELINE = "- {id: P, type: count, to: [sink], on_error: dead_letter}\n"
TASK = TaskId("P", 0)
RIGHTS = {
    "input": ["Read"],
    "output": ["DescribeConfigs", "Write"],
    "state": ["DescribeConfigs", "Read", "Write"],
    "dead letters": ["DescribeConfigs", "Write"],
    "group": ["Read"],
    "transactions": ["Write"],
}
"""The rights of a task, by what they are on."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


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
