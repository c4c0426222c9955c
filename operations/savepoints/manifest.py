"""What a savepoint is, as its file `savepoint.json` says it.

A savepoint is a folder: that file, `pipeline.yaml` as it was, and a file of records for each
partition of a state topic, or of an arc with records that its reader had not processed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.engine_version import RUNNING_VERSION
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.names import inside
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.common.typed_json import Count, Name, Strict, as_json, from_json, parse
from kafka_pipeline.deployment.desired_state import (
    PipelineVersion,
    version_from_json,
)

FORMAT = 1
"""The version of the format of savepoints; a change of it needs a new one."""

_MANIFEST = "savepoint.json"
_PIPELINE = "pipeline.yaml"


class Sources(StrEnum):
    """Where to begin in sources that are not the topics of the savepoint, but others like them."""

    OFFSETS = "offsets"
    TIME = "time"
    EARLIEST = "earliest"
    LATEST = "latest"


class SavedPartition(Strict, frozen=True, kw_only=True):
    """The file of a partition's records; `sha256` is that of the whole file, in hexadecimal."""

    partition: Count
    records: Count
    size_bytes: Count
    sha256: str


class SavedStore(Strict, frozen=True, kw_only=True):
    """The state of a store in all tasks of its processor, in the order of its state topic.

    Later records replace earlier ones with the same key, and a null deletes it. `topic` is the
    topic that they came from.
    """

    processor: Name
    store: Name
    topic: Name
    partitions: tuple[SavedPartition, ...]


class SavedPosition(Strict, frozen=True, kw_only=True):
    """The committed position in a partition; `metadata` as brokers keep it (`Committed`)."""

    partition: Count
    offset: Count
    metadata: str = ""

    @property
    def committed(self) -> Committed:
        """The position as a task reads it."""
        return Committed.read(self.offset, self.metadata)


class SavedInput(Strict, frozen=True, kw_only=True):
    """How far a processor has read one of its topics, and what was left in it if it is an arc.

    `name` is the topic's name in the processor's `from`, and `topic_id` the id that Kafka gave it.
    Partitions that the processor has never committed are missing among the `positions`.
    """

    processor: Name
    name: str
    topic: Name
    topic_id: str
    is_arc: bool
    positions: tuple[SavedPosition, ...] = ()
    left: tuple[SavedPartition, ...] = ()


class Manifest(Strict, frozen=True, kw_only=True):
    """A savepoint of a job.

    Nothing of the job ran for `stopped_ms`, from `made_at_ms` on. `token` is that of the stop.
    `cluster` is the id of the Kafka cluster; offsets and topic ids mean nothing elsewhere.
    """

    format: int
    job: str | None
    cluster: str
    made_at_ms: Count
    made_by: str
    stopped_ms: Count
    token: Name
    version: Any
    stores: tuple[SavedStore, ...]
    inputs: tuple[SavedInput, ...]

    def pipeline_version(self) -> PipelineVersion:
        """Return the version of the pipeline that ran."""
        return version_from_json(self.version, TopicNames(self.job, "", ""))

    @property
    def job_text(self) -> str:
        """The job for the user."""
        return f'the job "{self.job}"' if self.job else "the job without a name"

    @property
    def size_bytes(self) -> int:
        """The size of all files of records."""
        return sum(part.size_bytes for _, part in self.files())

    def records(self) -> tuple[int, int]:
        """Return how many records of state there are, and how many were left in arcs."""
        return (
            sum(part.records for store in self.stores for part in store.partitions),
            sum(part.records for each in self.inputs for part in each.left),
        )

    def files(self) -> Iterator[tuple[str, SavedPartition]]:
        """Yield all files of records, each with the topic that it came from."""
        for store in self.stores:
            yield from ((store.topic, part) for part in store.partitions)
        for each in self.inputs:
            yield from ((each.topic, part) for part in each.left)


def file_of(folder: Path, topic: str, partition: int) -> Path:
    """Return where the records of a partition are.

    Raises `ConfigError` if the savepoint has a link there that leads out of its folder.
    """
    try:
        return inside(folder, f"{topic}-{partition}.arrow")
    except ValueError as error:
        raise ConfigError(f"{folder} is damaged: {error}") from error


def write_manifest(folder: Path, manifest: Manifest, text: str) -> None:
    """Write what makes a folder with files of records a savepoint, and the pipeline's `text`."""
    _write(folder / _PIPELINE, text)
    _write(folder / _MANIFEST, json.dumps(as_json(manifest), indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file)


def is_savepoint(folder: Path) -> bool:
    """Whether a folder has a savepoint in it, if only a damaged one."""
    # Not `Path.is_file`, which raises for a folder of another user, such as `lost+found`.
    return os.path.isfile(folder / _MANIFEST)


def pipeline_file(folder: Path) -> Path:
    """Return the path of the pipeline.yaml of a savepoint."""
    return folder / _PIPELINE


def read_manifest(folder: Path) -> Manifest:
    """Return what is in a savepoint; its other files are not looked at.

    Raises `ConfigError` if there is none in this folder, or if it cannot be read.
    """
    path = folder / _MANIFEST
    try:
        data = parse(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{folder} is not a savepoint: it has no {_MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    written = data.get("format") if isinstance(data, dict) else None
    if written != FORMAT:
        raise ConfigError(
            f"{path} has format {written!r}, and this version of the engine ({RUNNING_VERSION}) "
            f"reads {FORMAT}: use the version that made the savepoint"
        )
    try:
        manifest: Manifest = from_json(Manifest, data, "the savepoint")
        manifest.pipeline_version()
    except ValueError as error:
        raise ConfigError(
            f"{path} cannot be read: {error}. If a newer version of the engine made it, install "
            f"that one (this one is {RUNNING_VERSION})"
        ) from error
    return manifest
