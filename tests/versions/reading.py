"""Reads a sample that `sample.py` wrote, with whatever version of the engine is installed.

    python tests/versions/reading.py SAMPLE FOLDER

prints what that version understands of it, as JSON; the folder is empty. It imports only the
engine, so that former versions can run it.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    Message,
    Processors,
    Threads,
    replicas,
)
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import Deployment
from kafka_pipeline.operations.savepoints.manifest import read_manifest

NAMES = TopicNames("job", "in", "out")


def load(file: Path) -> Any:
    """Return a sample."""
    return json.loads(gzip.decompress(file.read_bytes()))


def control_records(plain: Iterable[Any]) -> list[ControlRecord]:
    """Return records of a sample."""
    return [
        ControlRecord(
            topic,
            key.encode("latin-1"),
            value.encode("latin-1"),
            tuple((name, text.encode("latin-1")) for name, text in headers.items()),
        )
        for topic, key, value, headers in plain
    ]


def message(plain: Iterable[Any]) -> Message | None:
    """Return the message of some records."""
    codec, found = Codec(NAMES), None
    for record in control_records(plain):
        found = codec.decode(record)
    return found


def deployment(*parts: Iterable[Any]) -> Deployment:
    """Return what the records of a pipeline topic say."""
    found = Deployment(NAMES)
    for plain in parts:
        for record in control_records(plain):
            found.take(record)
    return found


def restore(folder: Path, files: dict[str, str]) -> None:
    """Write the savepoint of a sample into a folder."""
    for name, content in files.items():
        (folder / name).write_bytes(bytes.fromhex(content))


def understood(sample: Any, folder: Path) -> dict[str, Any]:
    """Return the facts of a sample on which managers act; `folder` is empty."""
    restore(folder, sample["savepoint"])
    found: dict[str, Any] = {
        name: _facts(message(plain)) for name, plain in sample["messages"].items()
    }
    for name, plain in sample["wishes"].items():
        wish = deployment(plain).wish
        found[f"wish: {name}"] = None if wish is None else wish.version
    for name, its in sample["pipelines"].items():
        found[f"version: {name}"] = _tasks(its["version"])
        found[f"assignment: {name}"] = _facts(message(its["assignment"]))
    manifest = read_manifest(folder)
    found["savepoint"] = [each.processor for each in manifest.stores], manifest.records()
    return found


def _tasks(plain: Iterable[Any]) -> list[Any] | str:
    """Return the tasks of a version of the pipeline, or why it cannot be read."""
    try:
        pipeline = deployment(plain).version(7).pipeline
    except ConfigError as error:
        return str(error)
    return [[str(each.task), each.fingerprint] for each in replicas(pipeline, 1, {"Balance": 2})]


def _facts(found: Message | None) -> list[Any]:
    facts: list[Any] = [type(found).__name__]
    if isinstance(found, Heartbeat | Threads):
        report = found.report
        facts += [report.tm_id, report.incarnation, report.epoch, report.sequence, report.leaving]
        facts += [[str(each.task), each.state, each.fingerprint] for each in report.tasks]
    if isinstance(found, Processors):
        facts += [[str(each.task), each.fingerprint] for each in found.assign]
        facts += map(str, found.revoke)
    return facts


if __name__ == "__main__":
    print(json.dumps(understood(load(Path(sys.argv[1])), Path(sys.argv[2]))))
