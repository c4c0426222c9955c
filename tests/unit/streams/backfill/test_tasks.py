"""Tasks are done as a whole or not at all, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_pipeline import StreamsError, SupplierError
from kafka_pipeline.common.errors import ConfigError, EngineError, PipelineError, UnavailableError
from kafka_pipeline.streams.backfill import tasks
from kafka_pipeline.streams.backfill.tasks import Done, Failed, Workspace
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError


@dataclass
class Work:
    """Writes a file, reports its progress, and raises `error` if there is one."""

    folder: Path
    error: BaseException | None = None
    calls: int = 0

    def work(self, workspace: Workspace) -> Done:
        self.calls += 1
        (workspace.path / "result").write_text("all of it")
        workspace.progress(3)
        workspace.progress(4)
        assert tasks.progress_of(self.folder.parent) == 7
        if self.error is not None:
            raise self.error
        return Done(records_in=7, written={"out": 5})


def test_a_task_is_done_once_with_all_that_it_wrote(tmp_path: Path) -> None:
    task = Work(tmp_path / "stage" / "A_0")
    assert tasks.result_of(task.folder) is None
    done = Done(records_in=7, written={"out": 5})
    assert tasks.run(task) == tasks.run(task) == tasks.result_of(task.folder) == done
    assert task.calls == 1
    assert (task.folder / "result").read_text() == "all of it"
    assert [path.name for path in (tmp_path / "stage").iterdir()] == ["A_0"]
    assert tasks.progress_of(tmp_path / "stage") == 0


@pytest.mark.parametrize(
    ("error", "reason", "exit_code"),
    [
        (ConfigError("a.csv is no good"), "a.csv is no good", 2),
        (UnavailableError("no broker"), "no broker", 3),
        (EngineError("lost"), "A_0: lost", 1),
        (OSError(28, "No space left on device"), "A_0: [Errno 28] No space left on device", 1),
        (
            ProcessingFailedError("record in[0]@7: no good", ValueError()),
            "A_0: record in[0]@7: no good. Fix the processor",
            1,
        ),
        (KeyError("model"), "A_0: Traceback", 1),
        (StreamsError("no store"), "A_0: no store", 1),
        (SupplierError("processor"), "A_0: Traceback", 1),
    ],
)
def test_a_task_that_fails_leaves_nothing_and_says_why(
    tmp_path: Path, error: BaseException, reason: str, exit_code: int
) -> None:
    failed = tasks.run(Work(tmp_path / "stage" / "A_0", error), with_values=True)
    assert isinstance(failed, Failed)
    assert failed.reason.startswith(reason)
    assert failed.exit_code == exit_code
    assert list((tmp_path / "stage").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (KeyError("4111111111111111"), "KeyError"),
        (SupplierError("4111111111111111"), "kafka_pipeline.SupplierError"),
        (StreamsError("4111111111111111"), "A_0: StreamsError"),
        (ConfigError("a.csv: 4111111111111111", shown="a.csv"), "a.csv"),
    ],
)
def test_a_reason_quotes_no_record_unless_it_may(
    tmp_path: Path, error: Exception, last: str
) -> None:
    failed = tasks.run(Work(tmp_path / "stage" / "A_0", error))
    assert isinstance(failed, Failed)
    assert "4111" not in failed.reason
    reason = failed.reason.removesuffix("; log_record_values: true shows its message")
    assert reason.splitlines()[-1] == last


def test_a_task_that_was_done_elsewhere_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    class Overtaken(Work):
        def work(self, workspace: Workspace) -> Done:
            tasks.run(Work(self.folder))
            return Done(records_in=1)

    task = Overtaken(tmp_path / "stage" / "A_0")
    assert tasks.run(task) == Done(records_in=7, written={"out": 5})


@pytest.mark.parametrize(
    ("codes", "kind"), [([2, 2], ConfigError), ([2, 1], PipelineError), ([3], PipelineError)]
)
def test_all_that_went_wrong_is_told_at_once(codes: list[int], kind: type[PipelineError]) -> None:
    failed = [Failed(f"reason {number}", code) for number, code in enumerate(codes)]
    with pytest.raises(PipelineError, match="reason 0") as caught:
        tasks.require_done([Done(), *failed])
    assert type(caught.value) is kind
    assert str(caught.value).count("reason") == len(codes)
