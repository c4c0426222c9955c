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

from common.monitoring.exposition import PROCESS_METRICS
from jobmanager import metrics as of_job_manager
from taskmanager import metrics as of_task_manager

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


def test_prometheus_loads_the_alerts() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    assert config["rule_files"] == ["prometheus_alerts.yaml"]
    assert {scrape["job_name"] for scrape in config["scrape_configs"]} == {"pipeline"}


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool comes with Prometheus")
@pytest.mark.parametrize(
    ("kind", "file"), [("rules", "prometheus_alerts.yaml"), ("config", "prometheus.yaml")]
)
def test_prometheus_accepts_the_files(kind: str, file: str) -> None:
    done = subprocess.run(
        ["promtool", "check", kind, str(DEPLOY / file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
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
