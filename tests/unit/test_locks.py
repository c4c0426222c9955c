"""The locks of packages: what is in them, and that they agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.quix import VERSION as QUIX_VERSION
from scripts.sbom_jars import add_jars

ROOT = Path(__file__).parents[2]
LOCKS = [ROOT / "requirements.lock", *sorted((ROOT / "locks").glob("*.lock"))]
HASHES = r"(?:\n +--hash=sha256:[0-9a-f]{64}(?: \\)?)+"
ENTRY = re.compile(r"([A-Za-z0-9_.-]+)==(\S+)(?: ; [^\\]+)? \\(" + HASHES + r")\n")


def versions(lock: Path) -> dict[str, str]:
    return {name: version for name, version, _ in ENTRY.findall(lock.read_text())}


def named(requirement: str) -> str:
    return re.split(r"[\[<>=~! ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_there_is_a_lock_for_each_purpose() -> None:
    names = [lock.name for lock in LOCKS]
    assert names == [
        "requirements.lock",
        "build.lock",
        "daemons.lock",
        "flink.lock",
        "kubernetes.lock",
        "quix.lock",
        "tools.lock",
        "users.lock",
    ]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_lock_says_how_to_renew_it_and_has_nothing_but_versions_with_digests(lock: Path) -> None:
    first, command, *_ = lock.read_text().splitlines()
    assert first.startswith("#")
    assert command == "#    ./scripts/lock.sh"
    rest = ENTRY.sub("", lock.read_text()).splitlines()
    assert rest == [first, command]


def test_locks_of_one_environment_have_the_tested_versions() -> None:
    tested = versions(ROOT / "requirements.lock")
    daemons = versions(ROOT / "locks" / "daemons.lock")
    users = versions(ROOT / "locks" / "users.lock")
    assert daemons.items() <= users.items() <= tested.items()
    assert set(versions(ROOT / "locks" / "build.lock")) == {"setuptools"}
    assert versions(ROOT / "locks" / "quix.lock")["quixstreams"] == QUIX_VERSION


def test_everything_that_the_project_needs_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    daemons = {*project["dependencies"], *extras["console"]}
    assert {named(it) for it in daemons} <= versions(ROOT / "locks" / "daemons.lock").keys()
    users = {*daemons, *extras["secure"], *extras["test"]}
    locked = versions(ROOT / "locks" / "users.lock").keys()
    assert {named(it) for it in users} <= locked
    # Users do not need what only the project is checked with.
    assert not {"ruff", "mypy", "playwright", "docker", "hypothesis"} & locked
    tested = {*users, *extras["dev"]}
    assert {named(it) for it in tested} <= versions(ROOT / "requirements.lock").keys()


def test_jars_are_components_with_their_digests() -> None:
    bom: dict[str, Any] = {"components": [{"name": "pyspark"}]}
    add_jars(bom, "kafka-1", {"b.jar": "22", "a.jar": "11"})
    assert [component["name"] for component in bom["components"]] == [
        *("pyspark", "kafka-1/a.jar", "kafka-1/b.jar")
    ]
    assert bom["components"][1]["hashes"] == [{"alg": "SHA-256", "content": "11"}]
