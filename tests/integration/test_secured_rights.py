"""A task without one of the rights of `pipeline acls` says what is missing, and goes on with it."""

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


def rights(job: Job, folder: Path) -> dict[str, AclBinding]:
    """Return the rights of the task, by what they are on and what they allow."""
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE)
    names = {
        job.config.source_topic: "input",
        job.config.sink_topic: "output",
        job.names.state("P"): "state",
        job.names.dead_letter("P"): "dead letters",
        job.names.consumer_group("P"): "group",
        job.names.task_ids: "transactions",
    }
    found = acls_of(job.config, load_pipeline(file, job.config))
    return {
        f"{names[acl.resource.name]}: {acl.operation}": _binding(acl)
        for acl in found
        if acl.role is Role.TASKMANAGER and acl.resource.name in names
    }


def _binding(acl: Acl) -> AclBinding:
    pattern = "prefixed" if acl.resource.is_prefix else "literal"
    return binding(acl.resource.kind, acl.resource.name, pattern, f"User:{acl.role}", acl.operation)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("input: Read", "Describe of in_"),
        ("output: Write", "Describe of in_"),
        ("output: DescribeConfigs", "DescribeConfigs of out_"),
        ("state: Write", "a right is missing, on a topic"),
        ("state: DescribeConfigs", "DescribeConfigs of out_"),
        ("dead letters: Write", "Describe of in_"),
        ("dead letters: DescribeConfigs", "DescribeConfigs of out_"),
        ("transactions: Write", "a right is missing, Write of a transactional id"),
    ],
)
def test_task_without_a_right_says_so_and_goes_on_with_it(
    job: Job, secured: Secured, tmp_path: Path, missing: str, said: str
) -> None:
    all_rights = rights(job, tmp_path)
    secured.grant([acl for name, acl in all_rights.items() if name != missing])
    job.write(Record(b"k", b"1", 1), Record(None, b"1", 2), Record(b"k", b"1", 3))
    thread = Thread(job, 0)
    replica = job.replica(CountSpec(), OnError.DEAD_LETTER)
    thread.assign(replica)
    thread.step()
    step_until(lambda: thread.status(TASK).state is TaskState.FAILED, thread)
    assert said in thread.status(TASK).reason
    assert "authorization failed" in thread.status(TASK).reason
    secured.grant([all_rights[missing]])
    thread.revoke(TASK)
    step_until(lambda: not thread.thread.tasks, thread)
    thread.assign(replica)
    step_until(lambda: job.committed() == 3, thread)
    job.config = replace(job.config, kafka=secured.kafka("admin"))
    assert [record.value for record in job.read(job.config.sink_topic)] == [b"1", b"2"]
    thread.close()
