"""A plan in the form shown on a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from kafka_pipeline.admin import plans
from kafka_pipeline.admin.plans import changed_code, overview
from kafka_pipeline.common.cluster.code_versions import CodeChange
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec, SumSpec
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from kafka_pipeline.deployment.plan import plan
from tests.small_config import small_config

NAMES = TopicNames("job", "in", "out")
A = PipelineProcessor("A", ForwardSpec(), ("B",), (SOURCE,))
B = PipelineProcessor("B", SumSpec(), (SINK,), ("A",))
BEFORE = Pipeline((A, B), NAMES, 2)
RUNS = PipelineVersion(7, BEFORE, "", 0, "ann@host")


def shown(
    after: Pipeline,
    current: PipelineVersion | None = RUNS,
    file: str = "",
    code: Sequence[CodeChange] = (),
) -> str:
    before = current.pipeline if current else None
    existing = [spec.name for spec in before.data_topics(1)] if before else []
    text = io.StringIO()
    console = Console(file=text, width=200)
    console.print(overview(plan(before, after, existing), current, file, code))
    return text.getvalue()


def test_pipeline_that_runs_already_changes_nothing() -> None:
    assert shown(BEFORE) == "nothing changes: the job runs this pipeline, as version 7\n"


def test_lines_that_were_edited_are_shown_and_so_is_what_somebody_else_has_changed() -> None:
    runs = replace(RUNS, text="- id: A\n  limit: 60\n  to: [B]\n")
    after = Pipeline((replace(A, to=(SINK,)),), NAMES, 2)
    text = shown(after, runs, "- id: A\n  limit: 50\n  to: [B]\n  on_error: \x1b[2J\n")
    begin = "Lines of the file:\n  -  limit: 60\n  +  limit: 50\n  +  on_error: \\x1b[2J\n\n"
    assert begin in text
    long = "".join(f"# {number}\n" for number in range(70))
    assert "  +# 59\n  and 10 more lines\n" in shown(after, RUNS, long)
    assert "Lines of the file" not in shown(after, RUNS)


def test_first_version_adds_everything() -> None:
    text = shown(BEFORE, None)
    assert "the job has no pipeline yet" in text
    assert "4 added" in text
    assert "Topics made:\n  A_B_job\n" in text
    assert "unless `pipeline topic create` makes them before):\n  in\n  out\n" in text
    assert "in by A, from its oldest record" in text


def test_processor_that_goes_is_a_loss_and_its_arc_is_drained() -> None:
    text = shown(Pipeline((replace(A, to=(SINK,)),), NAMES, 2))
    assert "the job runs version 7, made by ann@host" in text
    assert "2 restarted" in text
    assert "2 removed" in text
    assert "Topics orphaned:\n  A_B_job\n" in text
    assert "A_B_job, read by B, written by A" in text
    assert 'Taken away:\n  "B" is removed\n' in text


def test_new_state_is_shown_and_kept_state_only_counted() -> None:
    stores = (LoggedStore("counts"),)
    counter = PipelineProcessor("C", CountSpec(), (SINK,), (SOURCE,), stores=stores)
    with_count = Pipeline((A, B, counter), NAMES, 2)
    assert '"counts" of C (state_topic_C_job)' in shown(with_count)
    kept = shown(
        Pipeline((A, replace(B, spec=SumSpec(constant=2)), counter), NAMES, 2),
        replace(RUNS, pipeline=with_count),
    )
    assert "State: 1 store kept" in kept
    assert "state_topic_C_job" not in kept


def test_store_that_is_taken_away_is_named_there_and_its_topic_among_the_orphaned_ones() -> None:
    stores = (LoggedStore("counts"),)
    counter = PipelineProcessor("C", CountSpec(), (SINK,), (SOURCE,), stores=stores)
    text = shown(BEFORE, replace(RUNS, pipeline=Pipeline((A, B, counter), NAMES, 2)))
    assert "State: 0 stores kept\n\n" in text
    assert "Topics orphaned:\n  state_topic_C_job\n" in text
    assert '"C" is removed, and its state in state_topic_C_job is no longer kept\n' in text
    assert text.count("state_topic_C_job") == 2


def test_code_that_task_managers_do_not_run_yet_is_named_whether_or_not_the_pipeline_changes() -> (
    None
):
    code = [CodeChange("shop", ("A",), (0, 1))]
    lines = (
        "\nCode changed:\n  shop, which has the code of A: takes effect once TaskManagers 0, 1 are "
        "restarted\n"
    )
    for after in (BEFORE, Pipeline((A, replace(B, spec=SumSpec(constant=2))), NAMES, 2)):
        assert shown(after, code=code).endswith(lines)
        assert shown(after, code=code) == shown(after) + lines


def test_code_is_compared_only_with_that_of_a_version_that_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text("")
    config = small_config(modules=("shop",), python_path=(tmp_path,))
    runs = SimpleNamespace(code={0: {"shop": "of yesterday"}})
    monkeypatch.setattr(plans, "read_status", lambda _: runs)
    deployment = Deployment(NAMES)
    assert changed_code(config, deployment, BEFORE) == []
    for record in records(NAMES, Wish(version=7), RUNS):
        deployment.take(record)
    assert changed_code(config, deployment, BEFORE) == [CodeChange("shop", (), (0,))]
    assert changed_code(replace(config, modules=()), deployment, BEFORE) == []
