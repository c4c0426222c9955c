"""Who may import whom: admin → jobmanager | taskmanager → streams → common."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "common": {"common"},
    "streams": {"streams", "common"},
    "jobmanager": {"jobmanager", "streams", "common"},
    "taskmanager": {"taskmanager", "streams", "common"},
    "admin": {"admin", "jobmanager", "taskmanager", "streams", "common"},
}
CORES = (
    "jobmanager/state.py",
    "jobmanager/leadership.py",
    "jobmanager/load_balancer.py",
    "jobmanager/heartbeat_controller.py",
    "taskmanager/state.py",
    "taskmanager/thread_state.py",
    "taskmanager/slot.py",
)
VALUES = (
    "common/messages.py",
    "common/codec.py",
    "common/nodes.py",
    "common/status.py",
    "taskmanager/channel_messages.py",
    "taskmanager/thread_events.py",
)
IMPURE = {
    "asyncio",
    "confluent_kafka",
    "datetime",
    "multiprocessing",
    "os",
    "pathlib",
    "pyspark",
    "queue",
    "random",
    "secrets",
    "signal",
    "socket",
    "structlog",
    "subprocess",
    "threading",
    "time",
    "uuid",
}


def sources() -> list[Path]:
    return [path for package in MAY_IMPORT for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of the modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_at_start(path: Path) -> Iterator[str]:
    """Yield the full names of the modules that a file imports as soon as it is imported."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def importers(module: str) -> set[str]:
    return {
        name(path)
        for path in sources()
        if any(found == module or found.startswith(f"{module}.") for found in imported(path))
    }


@pytest.mark.parametrize("path", sources(), ids=name)
def test_imports_point_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    ours = {found.split(".")[0] for found in imported(path)} & MAY_IMPORT.keys()
    assert ours <= MAY_IMPORT[package]


def test_only_common_kafka_imports_confluent_kafka() -> None:
    users = importers("confluent_kafka")
    assert users
    assert all(user.startswith("common/kafka/") for user in users), users


def test_only_those_who_run_spark_import_pyspark() -> None:
    users = importers("pyspark") - {"taskmanager/spark.py"}
    assert users
    assert all(user.startswith("streams/spark/") for user in users), users


@pytest.mark.parametrize("entry", ["streams/__init__.py", "jobmanager/command.py", "admin/cli.py"])
def test_what_needs_no_spark_starts_without_pyspark_and_arrow(entry: str) -> None:
    """Both take a while; whoever needs them imports them late, in a function."""
    seen: set[Path] = set()
    waiting = [ROOT / entry]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        modules = set(imported_at_start(path))
        heavy = {module.split(".")[0] for module in modules} & {"pyspark", "pyarrow", "py4j"}
        assert not heavy, f"{entry} gets {heavy} by {name(path)}"
        for module in modules:
            target = ROOT.joinpath(*module.split("."))
            waiting += [
                p for p in (target.with_suffix(".py"), target / "__init__.py") if p.is_file()
            ]


@pytest.mark.parametrize("core", [*CORES, *VALUES])
def test_cores_import_no_clock_thread_kafka_spark_or_chance(core: str) -> None:
    found = set(imported(ROOT / core))
    assert not {module.split(".")[0] for module in found} & IMPURE
    assert not any(module.startswith("common.kafka") for module in found)


@pytest.mark.parametrize("core", CORES)
def test_what_cores_import_is_pure_too(core: str) -> None:
    seen: set[Path] = set()
    waiting = [ROOT / core]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        modules = set(imported(path))
        impure = {module.split(".")[0] for module in modules} & (IMPURE - {"pathlib", "os"})
        assert not impure, f"{core} gets {impure} by {name(path)}"
        for module in modules:
            target = ROOT.joinpath(*module.split(".")).with_suffix(".py")
            # topics.py needs the type of the configuration, not its module.
            if target.is_file() and name(target) != "common/config.py":
                waiting.append(target)


def test_every_package_of_the_wheel_is_checked() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == MAY_IMPORT.keys()
