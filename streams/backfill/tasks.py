"""A bounded task: works in its own folder, whose name shows whether the task is done.

The folder gets its final name only when all of its content is there. So a run that was killed
anywhere leaves finished tasks and leftovers; the next run does the unfinished tasks again.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kafka_pipeline.common.code.error_words import HOW_TO_SHOW, hides_words, traceback_of, words_of
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.errors import ConfigError, EngineError, PipelineError
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.backfill.outputs import count_runs
from kafka_pipeline.streams.engine.figures import TaskFigures
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.errors import StreamsError, SupplierError

_FIGURES = "figures.json"
_PROGRESS = "progress"
_KNOWN = (StreamsError, EngineError, OSError)
_UNFINISHED = ".unfinished-"
_WHAT_NEXT = "Fix the processor and start again, or choose another on_error and start over"


@dataclass(slots=True)
class Done:
    """The result of a task: its figures, and how many records it wrote."""

    records_in: int = 0
    skipped: int = 0
    dead_letters: int = 0
    dropped: int = 0
    written: dict[str, int] = field(default_factory=dict)
    """By topic, dead letters included."""
    runs: int = 0
    """How many runs are in its folder."""
    times: dict[str, int] = field(default_factory=dict)
    """The largest timestamp that it has processed of each input, by topic; -1 if none."""
    clocks: dict[str, int] = field(default_factory=dict)
    """The least clock of the records that it will send, by internal topic; -1 while unknown."""

    def add(self, figures: TaskFigures) -> None:
        """Add the figures of a group; `count_written` counts the records that it wrote."""
        self.records_in += figures.records_in
        self.skipped += figures.skipped
        self.dead_letters += figures.dead_letters
        self.dropped += figures.dropped.total()

    def count_written(self, counts: Mapping[str, int]) -> None:
        """Add records that were written, by topic."""
        for topic, count in counts.items():
            self.written[topic] = self.written.get(topic, 0) + count


@dataclass(frozen=True, slots=True)
class Failed:
    """The reason why a task failed, and the exit code of the error's class."""

    reason: str
    exit_code: int


class Workspace:
    """The folder that a task works in and reports its progress to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._told = 0

    def progress(self, records: int) -> None:
        """Add to the number of processed records, in a file that `progress_of` reads."""
        self._told += records
        (self.path / _PROGRESS).write_text(str(self._told))


class BackfillTask(Protocol):
    """Work that can be done anywhere, and repeated: it is sent to Spark's executors."""

    @property
    def folder(self) -> Path:
        """The task's folder once it is done."""

    def work(self, workspace: Workspace) -> Done:
        """Do all of the work, from the beginning. `run` turns errors into a `Failed`."""


def run(task: BackfillTask, *, with_values: bool = False) -> Done | Failed:
    """Do a task, unless it is done already; only `with_values`, a reason may quote records."""
    done = result_of(task.folder)
    if done is not None:
        return done
    path = task.folder.with_name(f"{task.folder.name}{_UNFINISHED}{uuid.uuid4().hex[:8]}")
    try:
        path.mkdir(parents=True)
        return _kept(path, task.folder, task.work(Workspace(path)))
    except PipelineError as error:
        return Failed(str(error) if with_values else error.shown, error.exit_code)
    except ProcessingFailedError as error:
        return Failed(f"{task.folder.name}: {error}. {_WHAT_NEXT}", PipelineError.exit_code)
    except BaseException as raised:
        caught = as_exception(raised)
        if isinstance(caught, _KNOWN) and not isinstance(caught, SupplierError):
            why = words_of(caught, with_values=with_values) or type(caught).__name__
        else:
            # From user code, such as `init`, or from this program: only the traceback shows where.
            why = traceback_of(caught, with_values=with_values)
        hint = f"; {HOW_TO_SHOW}" if hides_words(caught, with_values=with_values) else ""
        return Failed(f"{task.folder.name}: {why}{hint}", PipelineError.exit_code)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _kept(path: Path, folder: Path, done: Done) -> Done:
    """Give a folder its final name, unless another attempt of the task was faster."""
    done.runs = count_runs(path)
    figures = {name: getattr(done, name) for name in Done.__slots__}
    (path / _FIGURES).write_text(json.dumps(figures))
    (path / _PROGRESS).unlink(missing_ok=True)
    try:
        path.rename(folder)
    except OSError:
        done_before = result_of(folder)
        if done_before is None:
            raise
        return done_before
    return done


def result_of(folder: Path) -> Done | None:
    """Return the result of the task with this folder; `None` if it is not done."""
    try:
        text = (folder / _FIGURES).read_text()
    except FileNotFoundError:
        return None
    return Done(**json.loads(text))


def require_runs(folder: Path) -> Done:
    """Return the result of the task with this folder.

    Raises `ConfigError` unless all runs that it wrote are visible here.
    """
    done = result_of(folder)
    found = count_runs(folder)
    if done is None or found != done.runs:
        lost = "is not there" if done is None else f"has {counted(found, 'run')}, not {done.runs}"
        raise ConfigError(
            f"{folder} {lost}, though its task is done: the work folder must be on a storage that "
            "all executors of Spark see under the same path, and nobody else may change it. Start "
            f"again; if that does not help, remove {folder.parent.parent} to start over"
        )
    return done


def remove_unfinished(work: Path) -> None:
    """Remove what interrupted tasks left behind."""
    for path in work.glob(f"*/*{_UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def progress_of(stage: Path) -> int:
    """Return how many records the unfinished tasks of a stage have processed so far."""
    records = 0
    for path in stage.glob(f"*{_UNFINISHED}*/{_PROGRESS}"):
        try:
            records += int(path.read_text() or 0)
        except FileNotFoundError:  # just done, or just removed
            continue
    return records


def require_done(outcomes: Iterable[Done | Failed]) -> list[Done]:
    """Return the results of tasks. Raises `PipelineError` or `ConfigError` with all failures."""
    done = []
    failed = []
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            failed.append(outcome)
        else:
            done.append(outcome)
    if failed:
        reason = "\n".join(dict.fromkeys(failure.reason for failure in failed))
        if all(failure.exit_code == ConfigError.exit_code for failure in failed):
            raise ConfigError(reason)
        raise PipelineError(reason)
    return done
