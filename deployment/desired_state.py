"""The desired state of a job in its pipeline topic: versions of the pipeline, and the wish.

Each version is a permanent record. The wish is one record, which the next wish replaces: it names
the version to run, and other requests, such as pauses and restarts. A change writes both in one
transaction; JobManagers follow the topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from msgspec import Struct, structs

from kafka_pipeline.common.engine_version import RUNNING_VERSION
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import SPECS
from kafka_pipeline.common.protocol.messages import ControlRecord, MalformedMessageError
from kafka_pipeline.common.protocol.signing import (
    SIGNATURE,
    BadSignatureError,
    require_signed,
    signed,
)
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.common.typed_json import (
    Count,
    Name,
    Positive,
    Strict,
    as_json,
    from_json,
    parse,
)

FORMAT = 1
"""The version of the records' format, in their header `format`."""

_WISH = b"wish"
_CHANGE = "change"
_NUMBER = re.compile(rb"[1-9][0-9]{0,18}")
_VERSION_KEY = re.compile(rb"version-([1-9][0-9]{0,8})")


class UnreadableDeploymentError(ConfigError):
    """A record of the pipeline topic is not in this engine's format.

    The user installs the version of the engine that the other daemons of the job have.
    """


class TakenBack(Strict, frozen=True, kw_only=True):
    """Which `version` did not come up on its trial, why, and to which one the job went back.

    `savepoint` is that of the version that was rolled back.
    """

    version: Positive
    to: Positive
    reason: str
    savepoint: str = ""

    @property
    def text(self) -> str:
        """A clause for people."""
        text = f"version {self.version} was rolled back to version {self.to}: {self.reason}"
        if not self.savepoint:
            return text
        return (
            f"{text}. If state does not fit version {self.to} any more: {self.savepoint} is a "
            "savepoint of the job as it was before"
        )


@dataclass(frozen=True, slots=True)
class PipelineVersion:
    """A pipeline that a job has run, or will run.

    `number` counts from 1. The pipeline contains the partition counts of its topics. `text` is the
    content of its file; `made_by` is `user@host`. The JobManager made a version that has
    `takes_back`. `savepoint` is the host and folder of a savepoint from before the change, which is
    made if the format of state may change; "" if there is none.
    """

    number: int
    pipeline: Pipeline
    text: str
    made_at_ms: int
    made_by: str
    takes_back: TakenBack | None = None
    savepoint: str = ""


class StopOrder(Strict, frozen=True, kw_only=True):
    """Why a job must not run for now: a tool works on its topics.

    A `savepoint` copies them, and may be given up at any time. A `restore` creates them again;
    until it is complete, they hold neither the old state nor the new one. `token` identifies one
    run of a tool, and `by` is `user@host`. If it `drains`, records between processors are processed
    first.
    """

    purpose: Literal["savepoint", "restore"]
    token: Name
    by: str
    drains: bool = False


class Trial(Strict, frozen=True, kw_only=True):
    """That a version must come up, or else the job goes back to version `back_to`.

    `within_ms` is how long tasks may try to come up, as the JobManager that leads measures it.
    """

    back_to: Positive
    within_ms: Positive


class Wish(Strict, frozen=True, kw_only=True):
    """The state that the JobManager must bring about.

    The `version` runs. To change to the version `next`, the JobManager stops the processors that
    the change removes, lets processors downstream finish their remaining input, and makes `next`
    the version. `paused` processors and `paused_tasks` do not run until they are resumed. If the
    wish `drains`, no processor reads from outside the job, and each one stops when its input is
    finished. `restarts` counts the requested restarts of each processor or task. A `stop` has
    precedence over all else, and excludes a change of version. `task_managers` is the number of
    TaskManagers that may take part; a larger `tm_number` in the JobManager's config.yaml counts
    instead. While there is a `trial`, `next`, or the `version` if there is no `next`, is not
    confirmed yet.
    """

    version: Positive
    next: Positive | None = None
    paused: tuple[Name, ...] = ()
    paused_tasks: tuple[str, ...] = ()
    drains: bool = False
    restarts: Mapping[Name, Positive] = {}
    stop: StopOrder | None = None
    task_managers: Positive | None = None
    trial: Trial | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if `paused_tasks` has an item that is not a task id."""
        try:
            _ = [*map(TaskId.parse, self.paused_tasks)]
        except ValueError as error:
            raise ValueError(f"paused_tasks: {error}") from error

    def of(self, version: int, next_: int | None = None, trial: Trial | None = None) -> Wish:
        """Return the same wish for another version, or for a change from it to the next one."""
        return structs.replace(self, version=version, next=next_, trial=trial)

    def running(self, version: PipelineVersion) -> Wish:
        """Return the same wish for a version that runs alone.

        Processors and tasks that the version lacks are no longer paused: nobody could resume them.
        """
        pipeline = version.pipeline
        ids, tasks = {each.id for each in pipeline.processors}, {*map(str, pipeline.tasks)}
        return structs.replace(
            self.of(version.number, trial=self.trial),
            paused=tuple(id_ for id_ in self.paused if id_ in ids),
            paused_tasks=tuple(task for task in self.paused_tasks if task in tasks),
        )

    def with_paused(self, processors: Iterable[str], tasks: Iterable[str] = ()) -> Wish:
        """Return the same wish with these processors and tasks paused, and no others."""
        return structs.replace(
            self, paused=tuple(sorted(processors)), paused_tasks=tuple(sorted(tasks))
        )

    def renamed(self, new_ids: Mapping[str, str]) -> Wish:
        """Return the same wish, where processors and their tasks have `new_ids` by former ones."""
        tasks = map(TaskId.parse, self.paused_tasks)
        return self.with_paused(
            (new_ids.get(id_, id_) for id_ in self.paused),
            (str(TaskId(new_ids.get(t.processor, t.processor), t.partition)) for t in tasks),
        )

    def with_drain(self, *, drains: bool) -> Wish:
        """Return the same wish, with the pipeline draining or not."""
        return structs.replace(self, drains=drains)

    def with_stop(self, stop: StopOrder | None) -> Wish:
        """Return the same wish with this stop, or without one."""
        return structs.replace(self, stop=stop)

    def confirmed(self) -> Wish:
        """Return the same wish without a trial."""
        return structs.replace(self, trial=None)

    def with_task_managers(self, number: int | None) -> Wish:
        """Return the same wish for so many TaskManagers; with `None`, config.yaml decides."""
        return structs.replace(self, task_managers=number)

    def with_restarts(self, ids: Iterable[str]) -> Wish:
        """Return the same wish with one more restart of each of these processors or tasks."""
        more = {id_: self.restarts.get(id_, 0) + 1 for id_ in ids}
        return structs.replace(self, restarts={**self.restarts, **more})


def task_managers_of(wish: Wish | None, tm_number: int) -> int:
    """Return how many TaskManagers may take part: `tm_number` of config.yaml, or more as grown."""
    return max(tm_number, (wish and wish.task_managers) or 0)


def is_restoring(wish: Wish | None) -> bool:
    """Whether the job's topics are being restored, perhaps by a tool that was interrupted."""
    return wish is not None and wish.stop is not None and wish.stop.purpose == "restore"


def why_stopped(wish: Wish | None) -> str:
    """Return why nothing of the job runs, and what to do; "" if no tool works on it."""
    if wish is None or wish.stop is None:
        return ""
    stop = wish.stop
    if is_restoring(wish):
        return (
            f"{stop.by} is restoring the state of this job, or was interrupted. Nothing runs "
            "before that is complete: repeat the command (`pipeline savepoint restore`, "
            "`pipeline rescale` or `pipeline apply`)"
        )
    return (
        f"nothing of this job runs, since {stop.by} is making a savepoint. If that command is "
        "gone, `pipeline resume` lets the job go on"
    )


def require_no_stop(wish: Wish | None) -> None:
    """Raise `ConfigError`, with the reason, if the job must not be changed or run now."""
    if why := why_stopped(wish):
        raise ConfigError(why)


def require_no_next(wish: Wish) -> None:
    """Raise `ConfigError` while a job changes to another version."""
    if wish.next is not None:
        raise ConfigError(
            f"version {wish.next} of the pipeline is to come: wait for it, see `pipeline versions`"
        )


@dataclass(frozen=True, slots=True)
class Deployed:
    """The version that a job runs, and its wish."""

    version: PipelineVersion
    wish: Wish


@dataclass(slots=True)
class Deployment:
    """The content of a job's pipeline topic, from its first record on.

    With a `key`, only signed records count, and changes are numbered from 1: otherwise, writing the
    records of an earlier change again would return the job to it.
    """

    names: TopicNames
    key: ControlKey | None = None
    wish: Wish | None = None
    change: int = 0
    """The number of the last change; 0 without a key."""
    has_unsigned_wish: bool = False
    """Whether there is a wish without a valid signature, which does not count."""
    is_signed: bool = False
    """Whether the current wish has a signature, which is not checked without a key."""
    _versions: dict[int, ControlRecord] = field(default_factory=dict)
    _read: dict[int, PipelineVersion] = field(default_factory=dict)

    def take(self, record: ControlRecord) -> None:
        """Add the next record of the topic.

        Raises `UnreadableDeploymentError` if another version of the engine has written it, and
        `MalformedMessageError` if no engine has, or if it is not signed or not new: the caller
        counts it, and goes on.
        """
        change = 0 if self.key is None else self._require_next(record, self.key)
        written = dict(record.headers).get("format")
        if written is None:
            raise MalformedMessageError(f"{record.topic}: no engine wrote the record")
        if written != b"%d" % FORMAT:
            raise UnreadableDeploymentError(
                f"topic {record.topic}, offset {record.offset}: written by another version of "
                f"the engine (this one reads format {FORMAT}). Install the version that the other "
                "daemons of the job have"
            )
        if found := _VERSION_KEY.fullmatch(record.key):
            self._versions[int(found[1])] = record
        elif record.key == _WISH:
            self.wish = _read(record, lambda data: from_json(Wish, data, "the wish"))
            self.change = change
            self.is_signed = any(name == SIGNATURE for name, _ in record.headers)

    def _require_next(self, record: ControlRecord, key: ControlKey) -> int:
        """Return the number of the change that a record belongs to; it must be signed and new."""
        try:
            require_signed(record, key)
        except BadSignatureError:
            self.has_unsigned_wish |= record.key == _WISH
            raise
        number = dict(record.headers).get(_CHANGE, b"")
        if _NUMBER.fullmatch(number) is None or int(number) <= self.change:
            raise MalformedMessageError(
                f"{record.topic}: the record repeats a change that was made before"
            )
        return int(number)

    def records(self, wish: Wish, *versions: PipelineVersion) -> list[ControlRecord]:
        """Return the records of a new wish, and of new versions, to write in one transaction."""
        plain = records(self.names, wish, *versions)
        if self.key is None:
            return plain
        change = (_CHANGE, b"%d" % (self.change + 1))
        numbered = [replace(record, headers=(*record.headers, change)) for record in plain]
        return [signed(record, self.key) for record in numbered]

    @property
    def numbers(self) -> list[int]:
        """The numbers of all versions, in order."""
        return sorted(self._versions)

    @property
    def pipelines(self) -> list[Pipeline]:
        """The pipelines of all versions, in order. Raises as `version`."""
        return [self.version(number).pipeline for number in self.numbers]

    @property
    def current(self) -> PipelineVersion | None:
        """The version that runs; `None` before the first one. Raises as `version`."""
        return None if self.wish is None else self.version(self.wish.version)

    @property
    def coming(self) -> PipelineVersion | None:
        """The version that a change in progress leads to, if any. Raises as `version`."""
        number = None if self.wish is None else self.wish.next
        return None if number is None else self.version(number)

    @property
    def newest(self) -> PipelineVersion | None:
        """The version to come, or else the current one. Raises as `version`."""
        return self.coming or self.current

    def version(self, number: int) -> PipelineVersion:
        """Return a version.

        Raises `UnreadableDeploymentError` if there is no such version, or if its record is not in
        this engine's format.
        """
        if number not in self._read:
            record = self._versions.get(number)
            if record is None:
                topic = self.names.pipeline
                raise UnreadableDeploymentError(f"topic {topic}: version {number} is missing")
            self._read[number] = _read(record, lambda data: version_from_json(data, self.names))
        return self._read[number]

    def taken_back(self, number: int) -> TakenBack | None:
        """Return how a version was rolled back by the JobManager; None if it was not.

        Versions that this engine cannot read are left out.
        """
        for later in self.numbers:
            if later > number:
                with suppress(UnreadableDeploymentError):
                    found = self.version(later).takes_back
                    if found is not None and found.version == number:
                        return found
        return None

    def former_inputs(self, number: int) -> dict[str, set[str]]:
        """Return the inputs of processors in all versions but this one, by processor.

        Versions that this engine cannot read are left out.
        """
        found: dict[str, set[str]] = {}
        for other in set(self.numbers) - {number}:
            with suppress(UnreadableDeploymentError):
                pipeline = self.version(other).pipeline
                for processor in pipeline.processors:
                    found.setdefault(processor.id, set()).update(pipeline.in_topics(processor))
        return found


def records(names: TopicNames, wish: Wish, *versions: PipelineVersion) -> list[ControlRecord]:
    """Return the records of a new wish, and of new versions, without a signature."""
    written = [
        *((b"version-%d" % each.number, version_to_json(each)) for each in versions),
        (_WISH, as_json(wish)),
    ]
    headers = (("format", b"%d" % FORMAT),)
    return [
        ControlRecord(names.pipeline, key, json.dumps(data).encode(), headers)
        for key, data in written
    ]


def _read(record: ControlRecord, read: Any) -> Any:
    try:
        return read(parse(record.value))
    except ValueError as error:
        raise UnreadableDeploymentError(
            f"topic {record.topic}, offset {record.offset}: {record.key.decode(errors='replace')} "
            f"cannot be read: {error}. If a newer version of the engine wrote it, install that one "
            f"(this one is {RUNNING_VERSION})"
        ) from error


def is_same(one: Pipeline, other: Pipeline) -> bool:
    """Whether two pipelines do the same to the same topics.

    The order of processors matters only if several of them send to one.
    """
    return _comparable(one) == _comparable(other)


def _comparable(pipeline: Pipeline) -> str:
    data = _pipeline_to_json(pipeline)
    data["processors"].sort(key=lambda processor: processor["id"])
    return json.dumps(data, sort_keys=True)


def version_to_json(version: PipelineVersion) -> dict[str, Any]:
    return {
        "number": version.number,
        "made_at_ms": version.made_at_ms,
        "made_by": version.made_by,
        **_pipeline_to_json(version.pipeline),
        "text": version.text,
        # Earlier versions of the engine ignore fields of a version that they do not know.
        **({"takes_back": as_json(version.takes_back)} if version.takes_back else {}),
        **({"savepoint": version.savepoint} if version.savepoint else {}),
    }


def _pipeline_to_json(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "source": pipeline.names.source,
        "sink": pipeline.names.sink,
        "parallelism": pipeline.parallelism,
        "partitions": dict(pipeline.partitions),
        "processors": [_processor_to_json(processor) for processor in pipeline.processors],
    }


def version_from_json(data: Any, names: TopicNames) -> PipelineVersion:
    """Return the version that `version_to_json` wrote, for this job. Raises ValueError."""
    read: _Version = from_json(_Version, data, "the version")
    pipeline = Pipeline(
        tuple(map(_processor, read.processors)),
        TopicNames(names.job_name, read.source, read.sink),
        read.parallelism,
        read.partitions,
    )
    return PipelineVersion(
        read.number,
        pipeline,
        read.text,
        read.made_at_ms,
        read.made_by,
        read.takes_back,
        read.savepoint,
    )


def _processor_to_json(processor: PipelineProcessor) -> dict[str, Any]:
    return {**as_json(processor), "type": processor.spec.type, "spec": as_json(processor.spec)}


@dataclass(frozen=True, slots=True)
class _Processor(PipelineProcessor):
    """A processor in JSON; its `type` decides on the fields of its `spec`."""

    spec: Any
    type: str = field(kw_only=True)


class _Version(Struct, frozen=True, kw_only=True):
    number: Positive
    made_at_ms: Count
    made_by: str
    source: Name
    sink: Name
    parallelism: Positive
    partitions: Mapping[Name, Positive]
    processors: tuple[Mapping[str, Any], ...]
    text: str
    takes_back: TakenBack | None = None
    savepoint: str = ""


def _processor(data: Mapping[str, Any]) -> PipelineProcessor:
    read: _Processor = from_json(_Processor, data, "a processor")
    # To ignore what a later version has added would compute something else.
    if unknown := data.keys() - {each.name for each in fields(_Processor)}:
        names = ", ".join(sorted(unknown))
        raise ValueError(f'processor "{read.id}" has unknown fields: {names}')
    type_ = SPECS.get(read.type)
    if type_ is None:
        raise ValueError(f'processor "{read.id}" has the unknown type "{read.type}"')
    spec = from_json(type_, read.spec, f'the spec of processor "{read.id}"')
    known = {each.name: getattr(read, each.name) for each in fields(PipelineProcessor)}
    return PipelineProcessor(**{**known, "spec": spec})
