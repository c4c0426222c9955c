"""The files of deploy/, as far as they can be checked without building a container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.kubernetes_schemas import Schemas

ROOT = Path(__file__).parents[2]
Objects = dict[str, Any]
KINDS = {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget", "Deployment"}
PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


@pytest.fixture
def objects() -> Objects:
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


@pytest.fixture
def config(objects: Objects, tmp_path: Path) -> Config:
    for name, text in objects["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text)
    load_pipeline(tmp_path / "pipeline.yaml", load_config(tmp_path / "config.yaml"))
    return load_config(tmp_path / "config.yaml")


def container(controller: Any) -> Any:
    (only,) = controller["spec"]["template"]["spec"]["containers"]
    return only


def test_pods_find_the_files_that_their_commands_name(objects: Objects, config: Config) -> None:
    for controller in (objects["StatefulSet"], objects["Deployment"]):
        made = container(controller)
        mounts = {mount["name"]: mount["mountPath"] for mount in made["volumeMounts"]}
        words = " ".join(made["args"]).split()
        named = [word for word in words if word.endswith(".yaml")]
        assert named
        assert {str(Path(word).parent) for word in named} == {mounts["config"]}
        assert {Path(word).name for word in named} <= objects["ConfigMap"]["data"].keys()


def test_there_is_a_pod_with_a_volume_for_each_task_manager(
    objects: Objects, config: Config
) -> None:
    spec = objects["StatefulSet"]["spec"]
    assert spec["replicas"] == config.tm_number
    assert spec["serviceName"] == objects["Service"]["metadata"]["name"]
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {
        mount["name"]: mount["mountPath"]
        for mount in container(objects["StatefulSet"])["volumeMounts"]
    }
    assert mounts[claim["metadata"]["name"]] == str(config.state_dir)


def test_one_task_manager_at_a_time_is_evicted(objects: Objects) -> None:
    budget = objects["PodDisruptionBudget"]["spec"]
    task_managers = objects["StatefulSet"]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, task_managers["selector"])
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    labels = task_managers["template"]["metadata"]["labels"]
    assert task_managers["selector"]["matchLabels"].items() <= labels.items()


def test_pods_are_given_longer_to_stop_than_task_managers_take(
    objects: Objects, config: Config
) -> None:
    grace_s = objects["StatefulSet"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s * 1000 > 11 * config.heartbeat_interval_ms


def test_probes_ask_the_port_that_config_yaml_opens(objects: Objects, config: Config) -> None:
    for controller in (objects["StatefulSet"], objects["Deployment"]):
        made = container(controller)
        assert made["ports"] == [{"name": "metrics", "containerPort": config.metrics_port}]
        for probe, path in PROBES.items():
            assert made[probe]["httpGet"] == {"path": path, "port": "metrics"}
    assert config.metrics_host == "0.0.0.0"


def test_user_of_the_pods_is_the_one_of_the_image(objects: Objects) -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text()
    for controller in (objects["StatefulSet"], objects["Deployment"]):
        user = controller["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        assert f"useradd --uid {user} " in lines
        assert f"USER {user}\n" in lines


def test_image_has_all_packages_and_files_that_exist() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text().splitlines()
    sources = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    copied = [word for words in sources if "--from=build" not in words for word in words]
    assert all((ROOT / name).exists() for name in copied)
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} <= set(copied)


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Schemas:
    return Schemas(tmp_path_factory.mktemp("schemas"))


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.26.0", "newest"])
def test_kubernetes_accepts_all_objects(objects: Objects, schemas: Schemas, version: str) -> None:
    version = schemas.versions()[-1] if version == "newest" else version
    assert set(objects) == KINDS
    for document in objects.values():
        assert schemas.complaints(document, version) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "path", "value", "complaint"),
    [
        ("StatefulSet", "spec/template/spec/terminationGracePeriod", 60, "unexpected"),
        ("StatefulSet", "spec/replicas", "2", "is not of type 'integer'"),
        ("Deployment", "spec/strategy/type", 1, "is not of type 'string'"),
        ("PodDisruptionBudget", "spec/selector/app", "taskmanager", "unexpected"),
        ("Service", "spec/clusterIp", "None", "unexpected"),
        ("ConfigMap", "data/tm_number", 2, "is not of type 'string'"),
    ],
)
def test_schemas_find_a_mistake(
    objects: Objects, schemas: Schemas, kind: str, path: str, value: object, complaint: str
) -> None:
    *parents, name = path.split("/")
    place = objects[kind]
    for parent in parents:
        place = place[parent]
    place[name] = value
    for version in schemas.versions()[1:]:  # the first one lacks a field of the budget
        (found,) = schemas.complaints(objects[kind], version)
        assert re.search(complaint, found), found
