"""The folder in which a backfill keeps its finished work, so that it can resume."""

from __future__ import annotations

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.streams.backfill.tasks import remove_unfinished

VERSION = 2
_ABOUT = "backfill.json"
_LOCK = "lock"
_RESULT = "result.json"
_UNFINISHED = ".new"
_WHAT = {
    "version": "was made by another version of this program",
    "pipeline": "belongs to another pipeline, or to one that was changed since",
    "partitions": "belongs to topics with other partitions",
    "input": "belongs to another input, or to one that was changed since",
    "target": "belongs to another --to",
}


@dataclass(frozen=True, slots=True)
class Work:
    """The folder of one backfill; no other backfill has its `id`.

    `started_ms` is when the backfill was first started. `ranges` has the offsets found at that
    time, `[from, to]` for each partition of the topics that are read.
    """

    folder: Path
    id: str
    started_ms: int
    ranges: Mapping[str, list[list[int]]]

    def stage(self, name: str) -> Path:
        """Return the folder of the tasks of a stage."""
        return self.folder / name

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of the whole backfill; `None` until it is done."""
        found: dict[str, Any] | None = read_json(self.folder / _RESULT)
        return found

    def finish(self, result: Mapping[str, Any]) -> None:
        """Record that the backfill is done, and remove the folders that are no longer needed."""
        write_json(self.folder / _RESULT, result)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a work folder, which is created for its owner only if it is missing.

    Raises `ConfigError` if another backfill holds it.
    """
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another backfill works in {folder} right now") from None
        yield


@contextmanager
def opened(
    folder: Path,
    identity: Mapping[str, Any],
    find_ranges: Callable[[], Mapping[str, list[list[int]]]],
    target: Path | None,
) -> Iterator[Work]:
    """Hold the folder of a backfill, which is created if it is missing.

    `find_ranges()` is called once in a backfill's life. Raises `ConfigError` if another backfill
    has made or holds the folder, and if `target` is not empty before the backfill begins.
    """
    with held(folder):
        about = read_json(folder / _ABOUT)
        if about is None:
            _require_new(folder, target)
            about = {
                "identity": {"version": VERSION, **identity},
                "id": uuid.uuid4().hex[:12],
                "started_ms": wall_clock_ms(),
                "ranges": find_ranges(),
            }
            write_json(folder / _ABOUT, about)
        _require_same(folder, about["identity"], identity)
        remove_unfinished(folder)
        yield Work(folder, about["id"], about["started_ms"], about["ranges"])


def _require_new(folder: Path, target: Path | None) -> None:
    # An interrupted first start may have left these.
    ours = (_LOCK, Path(_ABOUT).with_suffix(_UNFINISHED).name)
    others = [path.name for path in folder.iterdir() if path.name not in ours]
    if others:
        raise ConfigError(
            f"folder {folder} has {min(others)} in it, and is not a work folder of a backfill: "
            "give another one as --work"
        )
    if target is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists and is not an empty folder: give another --to")


def _require_same(folder: Path, before: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps({"version": VERSION, **identity}))
    for name, what in _WHAT.items():
        if before.get(name) != now[name]:
            raise ConfigError(
                f"the work folder {folder} {what}: remove it to start over, or give another one "
                "as --work"
            )


def read_json(path: Path) -> Any:
    """Return the content of a file; `None` if it is not there. Raises `ConfigError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(
            f"{path} is damaged ({error}): remove {path.parent} to start over"
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file, all or nothing."""
    unfinished = path.with_suffix(_UNFINISHED)
    unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
    unfinished.replace(path)


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of Kafka and of disks into errors for users."""
    try:
        yield
    except EngineError as error:
        raise UnavailableError(f"Kafka refuses: {error}") from error
    except OSError as error:
        raise UnavailableError(f"the folders of the backfill cannot be used: {error}") from error
