"""The smallest rights with which the roles around a job can do their work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.topic_names import BULK_GROUP, CONTROL_GROUP
from kafka_pipeline.common.topics import TopicSpec


class Role(StrEnum):
    """Who works with a job: two daemons, and four kinds of people or programs."""

    JOBMANAGER = "jobmanager"
    TASKMANAGER = "taskmanager"
    OPERATOR = "operator"
    MAINTAINER = "maintainer"
    WRITER = "writer"
    READER = "reader"


class ResourceKind(StrEnum):
    """What a right is on, as `kafka-acls.sh` names it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class AclOperation(StrEnum):
    """What a right allows.

    Kafka lets all who may READ, WRITE, DELETE or ALTER something DESCRIBE it.
    """

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    ALTER_CONFIGS = "AlterConfigs"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


_IMPLY_DESCRIBE = frozenset(
    (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
)


@dataclass(frozen=True, slots=True)
class Resource:
    """What a right is on: one thing, or all whose names have a prefix."""

    kind: ResourceKind
    name: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Acl:
    """The right of a role to do one thing."""

    role: Role
    resource: Resource
    operation: AclOperation


class _Wanted:
    """Collects the rights of one role, each once, without those that others imply."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._found: dict[Resource, set[AclOperation]] = {}

    def topics(self, names: Iterable[str], *operations: AclOperation) -> None:
        for name in names:
            self._found.setdefault(Resource(ResourceKind.TOPIC, name), set()).update(operations)

    def group(self, name: str, operation: AclOperation) -> None:
        self._found.setdefault(Resource(ResourceKind.GROUP, name), set()).add(operation)

    def write_as(self, id_: str, *, is_prefix: bool = False) -> None:
        resource = Resource(ResourceKind.TRANSACTIONAL_ID, id_, is_prefix)
        self._found.setdefault(resource, set()).add(AclOperation.WRITE)

    def add(self, other: _Wanted) -> None:
        for resource, operations in other._found.items():
            self._found.setdefault(resource, set()).update(operations)

    def acls(self) -> Iterator[Acl]:
        for resource, operations in self._found.items():
            implied = {AclOperation.DESCRIBE} if operations & _IMPLY_DESCRIBE else set()
            for operation in sorted(operations - implied):
                yield Acl(self._role, resource, operation)


def acls_of(config: Config, pipeline: Pipeline) -> tuple[Acl, ...]:
    """Return the rights that each role needs, role by role.

    Topics that the patterns of sources match are not in them, as only the cluster knows those.
    """
    roles = (_jobmanager, _taskmanager, _operator, _maintainer, _writer, _reader)
    return tuple(acl for role in roles for acl in role(config, pipeline).acls())


def rehearsal_acls(live: Config, config: Config, pipeline: Pipeline) -> tuple[Acl, ...]:
    """Return the rights that a maintainer needs for the shadow of a job, in addition to others.

    `live` is the configuration of the job; `config` and the pipeline are those of the shadow. The
    maintainer's process makes it, runs its daemons, publishes what it finds, and deletes all of it.
    """
    wanted = _Wanted(Role.MAINTAINER)
    for role in (_jobmanager, _taskmanager, _maintainer, _reader):
        wanted.add(role(config, pipeline))
    sinks = [topic for each in pipeline.processors for topic in pipeline.out_topics(each)]
    made = [*(spec.name for spec in control_topics(config)), *sinks]
    wanted.topics(made, AclOperation.DELETE)
    own = (AclOperation.CREATE, AclOperation.WRITE, AclOperation.DELETE)
    wanted.topics([live.topic_names.rehearsal], *own)
    return tuple(wanted.acls())


def _jobmanager(config: Config, pipeline: Pipeline) -> _Wanted:
    wanted, names = _Wanted(Role.JOBMANAGER), pipeline.names
    commands = [names.processors(str(tm_id)) for tm_id in range(config.tm_number)]
    created = (*control_topics(config), *pipeline.data_topics(1))
    wanted.topics((spec.name for spec in created), AclOperation.CREATE, AclOperation.DESCRIBE)
    wanted.topics(_checked(created), AclOperation.DESCRIBE_CONFIGS)
    wanted.topics([names.threads_jm, names.heartbeat], AclOperation.READ, AclOperation.WRITE)
    wanted.topics([names.threads_tm], AclOperation.READ)
    wanted.topics([*commands, names.heartbeat_events], AclOperation.WRITE)
    wanted.topics([names.pipeline], AclOperation.READ, AclOperation.WRITE)
    if config.console_port is not None:
        wanted.topics([names.rehearsal], AclOperation.READ)
    wanted.group(CONTROL_GROUP, AclOperation.DESCRIBE)
    wanted.write_as(names.jobmanager_transactional_id)
    wanted.write_as(names.pipeline_transactional_id)
    if pipeline.arcs:
        # To drain arcs: it fences their writers, finds the end by a record that it takes back, and
        # looks whether a record is left.
        own = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)
        wanted.topics(pipeline.arcs, *own)
        for reader in dict.fromkeys(pipeline.arcs.values()):
            wanted.group(names.consumer_group(reader), AclOperation.DESCRIBE)
        wanted.group(names.fetch_group, AclOperation.DESCRIBE)
        wanted.write_as(names.task_ids, is_prefix=True)
    return wanted


def _taskmanager(config: Config, pipeline: Pipeline) -> _Wanted:
    wanted, names = _Wanted(Role.TASKMANAGER), pipeline.names
    commands = [names.processors(str(tm_id)) for tm_id in range(config.tm_number)]
    # It looks whether they are all there before it starts.
    wanted.topics((spec.name for spec in control_topics(config)), AclOperation.DESCRIBE)
    wanted.topics(_checked(control_topics(config)), AclOperation.DESCRIBE_CONFIGS)
    wanted.topics([names.threads_jm, *commands], AclOperation.READ)
    wanted.topics([names.threads_tm, names.heartbeat], AclOperation.WRITE)
    wanted.group(CONTROL_GROUP, AclOperation.DESCRIBE)
    wanted.group(names.fetch_group, AclOperation.DESCRIBE)
    wanted.write_as(names.task_ids, is_prefix=True)
    for each in pipeline.processors:
        wanted.topics(pipeline.read_topics(each), AclOperation.READ)
        state = pipeline.state_topics(each).values()
        wanted.topics(state, AclOperation.READ)
        written = (*pipeline.out_topics(each), *state, *_dead_letters(pipeline, each))
        wanted.topics(written, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
        wanted.group(names.consumer_group(each.id), AclOperation.READ)
    return wanted


def _operator(config: Config, pipeline: Pipeline, role: Role = Role.OPERATOR) -> _Wanted:
    wanted, names = _Wanted(role), pipeline.names
    topics = (*control_topics(config), *pipeline.data_topics(1))
    wanted.topics((spec.name for spec in topics), AclOperation.CREATE, AclOperation.DESCRIBE)
    wanted.topics(_checked(topics), AclOperation.DESCRIBE_CONFIGS)
    wanted.topics([names.heartbeat], AclOperation.READ)
    wanted.topics([names.pipeline], AclOperation.READ, AclOperation.WRITE)
    wanted.group(CONTROL_GROUP, AclOperation.DESCRIBE)
    wanted.write_as(names.pipeline_transactional_id)
    for each in pipeline.processors:
        for dead in _dead_letters(pipeline, each):
            # Letters go back to where they came from. Those that were dealt with are deleted.
            wanted.topics([dead], AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)
            wanted.topics(pipeline.in_topics(each), AclOperation.WRITE)
            wanted.group(BULK_GROUP, AclOperation.DESCRIBE)
            wanted.write_as(names.dead_letters_transactional_id)
    return wanted


def _maintainer(config: Config, pipeline: Pipeline) -> _Wanted:
    """Return the rights for savepoints and resets: to copy, to empty and to fill what a job has.

    Also those to change the topics of the user: their partitions and settings.
    """
    wanted, names = _operator(config, pipeline, Role.MAINTAINER), pipeline.names
    wanted.group(BULK_GROUP, AclOperation.DESCRIBE)
    wanted.write_as(names.task_ids, is_prefix=True)
    wanted.write_as(names.tool_ids, is_prefix=True)
    # For a savepoint, coordinators of the processors' groups prove by a commit that they are ones.
    wanted.topics([names.threads_jm], AclOperation.READ)
    wanted.topics(pipeline.user_topics, AclOperation.ALTER, AclOperation.ALTER_CONFIGS)
    own = [*pipeline.arcs]
    for each in pipeline.processors:
        own += [*pipeline.state_topics(each).values(), *_dead_letters(pipeline, each)]
        dead = _dead_letters(pipeline, each)
        wanted.topics(dead, AclOperation.ALTER, AclOperation.ALTER_CONFIGS)
        wanted.topics((*pipeline.read_topics(each), *pipeline.out_topics(each)), AclOperation.READ)
        group = names.consumer_group(each.id)
        wanted.group(group, AclOperation.READ)
        wanted.group(group, AclOperation.DELETE)
    wanted.topics(own, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)
    return wanted


def _writer(_config: Config, pipeline: Pipeline) -> _Wanted:
    wanted = _Wanted(Role.WRITER)
    for each in pipeline.processors:
        own = [topic for topic in pipeline.read_topics(each) if topic not in pipeline.arcs]
        wanted.topics(own, AclOperation.WRITE)
    return wanted


def _reader(_config: Config, pipeline: Pipeline) -> _Wanted:
    wanted = _Wanted(Role.READER)
    for each in pipeline.processors:
        own = [topic for topic in pipeline.out_topics(each) if topic not in pipeline.arcs]
        wanted.topics(own, AclOperation.READ)
    wanted.group(BULK_GROUP, AclOperation.DESCRIBE)
    return wanted


def _dead_letters(pipeline: Pipeline, processor: PipelineProcessor) -> list[str]:
    topic = pipeline.dead_letter_topic(processor)
    return [topic] if topic else []


def _checked(topics: Iterable[TopicSpec]) -> Iterator[str]:
    """Yield the topics whose settings are checked when they exist."""
    return (spec.name for spec in topics if spec.needs)
