"""The alerts and the board of deploy/: they name only metrics and labels that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_pipeline.common.monitoring.exposition import PROCESS_METRICS
from kafka_pipeline.jobmanager import metrics as of_job_manager
from kafka_pipeline.taskmanager import metrics as of_task_manager

DEPLOY = Path(__file__).parents[2] / "deploy"
METRICS = (
    *of_job_manager.METRICS,
    *of_task_manager.OF_THE_DAEMON,
    *of_task_manager.OF_TASKS,
    *of_task_manager.OF_STANDBYS,
)
LABELS_OF = {
    **{name: {*metric.labels, "le"} for metric in METRICS for name in metric.series},
    **{name: set[str]() for name in PROCESS_METRICS},
}
OF_PROMETHEUS = {"job", "instance"}
"""The labels that Prometheus adds."""

METRIC = re.compile(r"\b(?:kafka_pipeline|process)_\w+")
MATCHERS = re.compile(r"\{([^}]*)\}")
GROUPS = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool comes with Prometheus"
)


needs_linter = pytest.mark.skipif(
    not shutil.which("dashboard-linter"),
    reason="dashboard-linter is Grafana's: go install github.com/grafana/dashboard-linter@latest",
)


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *words], capture_output=True, text=True, timeout=60, check=False
    )


def mistakes(expression: str) -> list[str]:
    """Return what is wrong with an expression, as far as its names show it."""
    metrics = METRIC.findall(expression)
    if not metrics:
        return ["it names no metric"]
    wrong = [f"{name} does not exist" for name in metrics if name not in LABELS_OF]
    known = OF_PROMETHEUS.union(*(LABELS_OF.get(name, set()) for name in metrics))
    matched = [re.split("[=!]", m)[0] for g in MATCHERS.findall(expression) for m in g.split(",")]
    grouped = [label for group in GROUPS.findall(expression) for label in group.split(",")]
    labels = {label.strip() for label in (*matched, *grouped)} - {""}
    return wrong + [f"no metric of it has the label {label}" for label in sorted(labels - known)]


def rules() -> list[Any]:
    groups = yaml.safe_load((DEPLOY / "prometheus_alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board() -> Any:
    return json.loads((DEPLOY / "grafana_board.json").read_text())


def expressions_of_the_board() -> list[str]:
    panels = board()["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_names_what_exists(rule: Any) -> None:
    assert mistakes(rule["expr"]) == []
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    names = METRIC.findall(rule["expr"])
    assert labels <= OF_PROMETHEUS.union(*(LABELS_OF[name] for name in names))
    assert rule["labels"]["severity"] in {"critical", "warning"}


@pytest.mark.parametrize("expression", expressions_of_the_board())
def test_a_panel_names_what_exists(expression: str) -> None:
    assert mistakes(expression) == []


def test_variables_of_the_board_name_what_exists() -> None:
    for variable in board()["templating"]["list"]:
        if variable["type"] == "query":
            metric, _, label = variable["query"]["query"][len("label_values(") : -1].rpartition(",")
            assert mistakes(metric) == []
            assert label.strip() in OF_PROMETHEUS.union(*LABELS_OF.values())


def test_panels_of_the_board_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in board()["panels"]
        for place in (panel["gridPos"],)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23


@needs_linter
def test_linter_of_grafana_accepts_the_board() -> None:
    command = ["dashboard-linter", "lint", "--strict", str(DEPLOY / "grafana_board.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_loads_the_alerts() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    assert config["rule_files"] == ["prometheus_alerts.yaml"]
    assert {scrape["job_name"] for scrape in config["scrape_configs"]} == {"pipeline"}


@needs_promtool
@pytest.mark.parametrize(
    ("kind", "file"), [("rules", "prometheus_alerts.yaml"), ("config", "prometheus.yaml")]
)
def test_prometheus_accepts_the_files(kind: str, file: str) -> None:
    done = promtool("check", kind, str(DEPLOY / file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("kafka_pipeline_task_lag > 0", "kafka_pipeline_task_lag does not exist"),
        ("up == 0", "it names no metric"),
        ('kafka_pipeline_task_state{sate="FAILED"}', "no metric of it has the label sate"),
        ("sum by (topic) (kafka_pipeline_task_lag_records)", "no metric of it has the label topic"),
    ],
)
def test_mistakes_are_found(expression: str, mistake: str) -> None:
    assert mistakes(expression) == [mistake]


TASK = 'job="pipeline", instance="tm0", taskmanager="0", task="A_0", processor="A", partition="0"'
MOVED = TASK.replace("tm0", "tm1").replace('taskmanager="0"', 'taskmanager="1"')
LEADS = 'kafka_pipeline_jobmanager_state{job="pipeline", instance="jm", state="LEADING"}'
EPOCH = 'kafka_pipeline_taskmanager_epoch{job="pipeline", instance="tm0", taskmanager="0"}'
EPOCH_OF_ANOTHER_JOB = EPOCH.replace('"pipeline"', '"another"')

HELD = f'kafka_pipeline_task_event_time_holder_unread_records{{{TASK}, holder="B_1"}}'
DROPPED = "kafka_pipeline_task_dropped_records_last_minute"
LATE = f'{DROPPED}{{{TASK}, reason="expired after idle (late_to)"}}'
KEYLESS = f'{DROPPED}{{{TASK}, reason="null key"}}'
RECORDS_IN = f"kafka_pipeline_task_records_in_total{{{TASK}}}"


def state(name: str) -> str:
    return f'kafka_pipeline_task_state{{{TASK}, state="{name}"}}'


@needs_promtool
@pytest.mark.parametrize(
    ("alert", "series"),
    [
        ("PipelineHasNoJobManager", {LEADS: "0x60"}),
        ("PipelineHasNoJobManager", {}),
        ("PipelineHasNoJobManager", {LEADS: "1x60", EPOCH_OF_ANOTHER_JOB: "7x60"}),
        (
            "PipelineTaskManagerSilent",
            {'kafka_pipeline_jobmanager_taskmanager_up{job="pipeline", taskmanager="0"}': "0x60"},
        ),
        ("PipelineTaskFailed", {state("FAILED"): "1x60", state("RUNNING"): "0x60"}),
        ("PipelineTaskDoesNotRun", {state("FAILED"): "0x60", state("RUNNING"): "0x60"}),
        ("PipelineTaskRestarts", {f"kafka_pipeline_task_restarts_total{{{TASK}}}": "0+1x60"}),
        ("PipelineLagGrows", {f"kafka_pipeline_task_lag_records{{{TASK}}}": "10000+100x60"}),
        (
            "PipelineRecordsWait",
            {f"kafka_pipeline_task_oldest_record_age_seconds{{{TASK}}}": "301x60"},
        ),
        ("PipelineDeadLetters", {f"kafka_pipeline_task_dead_letters_total{{{TASK}}}": "0+1x60"}),
        ("PipelineEventTimeWaits", {HELD: "0x60"}),
        ("PipelineLateRecords", {LATE: "2x60", RECORDS_IN: "0+100x60"}),
        # A backlog was read before the first look: the counter of records does not grow.
        ("PipelineLateRecords", {LATE: "_x51 20933 0x9", RECORDS_IN: "_x51 224000x10"}),
        ("PipelineDroppedRecords", {KEYLESS: "2x60", RECORDS_IN: "0+100x60"}),
        (
            "PipelineKeysDoNotMeet",
            {f'kafka_pipeline_task_key_warnings{{{TASK}, topic="t", problem="bytes"}}': "1x60"},
        ),
    ],
)
def test_an_alert_fires(alert: str, series: dict[str, str], tmp_path: Path) -> None:
    assert alert in fired(series, tmp_path)


@needs_promtool
def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    series = {
        LEADS: "1x60",
        EPOCH: "7x60",
        'kafka_pipeline_jobmanager_taskmanager_up{job="pipeline", taskmanager="0"}': "1x60",
        state("FAILED"): "0x60",
        state("RUNNING"): "1x60",
        # A task waits for another one now and then, and a record in 200 is late.
        HELD: "1x1 stale _x2 " * 12,
        LATE: "1x60",
        KEYLESS: "1x60",
        RECORDS_IN: "0+200x60",
        f"kafka_pipeline_task_lag_records{{{TASK}}}": "20000-100x60",
        f"kafka_pipeline_task_restarts_total{{{TASK}}}": "1x60",
        # The task moves with its count, which is not a new dead letter.
        f"kafka_pipeline_task_dead_letters_total{{{TASK}}}": "1000x30 _x30",
        f"kafka_pipeline_task_dead_letters_total{{{MOVED}}}": "_x30 1000x30",
    }
    assert fired(series, tmp_path) == set()


def fired(series: dict[str, str], folder: Path) -> set[str]:
    """Return the alerts that fire after an hour of these series, a value a minute."""
    names = [rule["alert"] for rule in rules()]
    test = {
        "rule_files": [str(DEPLOY / "prometheus_alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": of} for name, of in series.items()],
                "alert_rule_test": [{"eval_time": "55m", "alertname": name} for name in names],
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    done = promtool("test", "rules", str(folder / "test.yaml"))
    # The test says that no alert fires; promtool names those that do.
    return set(re.findall(r"alertname: (\w+), time: 55m", done.stdout + done.stderr))
