"""Which folder may import which; docs/architecture.md has the picture."""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from kafka_pipeline.admin.app import COMMANDS
from tests.folders import Import, syntax

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "common": (),
    "common/process": ("common",),
    "common/code": ("common",),
    "common/pipelines": ("common",),
    "common/security": (),
    "common/config": ("common/security", "common/pipelines", "common"),
    "common/protocol": ("common/security", "common/pipelines", "common"),
    "common/cluster": ("common/protocol", "common/pipelines", "common"),
    "common/monitoring": ("common/config", "common/code", "common/process", "common"),
    "common/control": (
        "common/monitoring",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common",
    ),
    "common/kafka": (
        "common/monitoring",
        "common/protocol",
        "common/config",
        "common/code",
        "common/process",
        "common",
    ),
    "streams": ("common/kafka", "common/code", "common"),
    "streams/stores": ("streams", "common/pipelines", "common"),
    "streams/processor": ("streams/stores", "streams"),
    "streams/event_time": (
        "streams/processor",
        "streams/stores",
        "streams",
        "common/pipelines",
        "common",
    ),
    "streams/engine": (
        "streams/event_time",
        "streams/processor",
        "streams/stores",
        "streams",
        "common/protocol",
        "common/pipelines",
        "common/code",
        "common",
    ),
    "streams/dsl": (
        "streams/engine",
        "streams/event_time",
        "streams/processor",
        "streams/stores",
        "streams",
        "common/pipelines",
        "common",
    ),
    "streams/api": (
        "streams/dsl",
        "streams/engine",
        "streams/processor",
        "streams/stores",
        "streams",
        "common/pipelines",
    ),
    "streams/spark": (
        "streams/engine",
        "common/monitoring",
        "common/config",
        "common/security",
        "common/code",
        "common/process",
        "common",
    ),
    "streams/sql": (
        "streams/spark",
        "streams/dsl",
        "streams/engine",
        "streams/event_time",
        "streams/processor",
        "streams/stores",
        "streams",
        "common/config",
        "common/security",
        "common/pipelines",
        "common/code",
        "common",
    ),
    "streams/builtin": ("streams/processor", "streams/stores", "streams", "common/pipelines"),
    "streams/tables": (
        "streams/engine",
        "streams/processor",
        "streams",
        "common/kafka",
        "common/pipelines",
        "common",
    ),
    "streams/pipeline/kinds": (
        "streams/builtin",
        "streams/tables",
        "streams/sql",
        "streams/dsl",
        "streams/engine",
        "streams/processor",
        "streams/stores",
        "streams",
        "common/config",
        "common/security",
        "common/pipelines",
        "common/code",
        "common",
    ),
    "streams/pipeline": (
        "streams/pipeline/kinds",
        "streams/sql",
        "streams/engine",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common/code",
        "common",
    ),
    "streams/testing": (
        "streams/pipeline",
        "streams/pipeline/kinds",
        "streams/sql",
        "streams/dsl",
        "streams/engine",
        "streams/stores",
        "streams",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common/code",
        "common",
    ),
    "streams/backfill": (
        "streams/pipeline",
        "streams/pipeline/kinds",
        "streams/sql",
        "streams/spark",
        "streams/engine",
        "streams/event_time",
        "streams/stores",
        "streams",
        "common/kafka",
        "common/control",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common/code",
        "common",
    ),
    "streams/rescaling": (
        "streams/backfill",
        "streams/sql",
        "streams/dsl",
        "streams/event_time",
        "streams/stores",
        "streams",
        "common/pipelines",
        "common",
    ),
    "deployment": (
        "streams/pipeline",
        "common/kafka",
        "common/control",
        "common/monitoring",
        "common/protocol",
        "common/config",
        "common/security",
        "common/pipelines",
        "common",
    ),
    "operations": (
        "deployment",
        "streams/pipeline",
        "streams",
        "common/kafka",
        "common/control",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common/security",
        "common/pipelines",
        "common",
    ),
    "operations/savepoints": (
        "operations",
        "deployment",
        "streams/rescaling",
        "streams/backfill",
        "streams/engine",
        "streams/event_time",
        "common/kafka",
        "common/control",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common/process",
        "common",
    ),
    "operations/rehearsal": (
        "operations",
        "deployment",
        "common/kafka",
        "common/control",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common",
    ),
    "console/views": (
        "operations/rehearsal",
        "operations",
        "deployment",
        "streams",
        "common/cluster",
        "common/protocol",
        "common/pipelines",
        "common",
    ),
    "console": (
        "console/views",
        "operations/rehearsal",
        "operations",
        "deployment",
        "common/control",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common/code",
        "common/process",
        "common",
    ),
    "taskmanager": (
        "deployment",
        "streams/tables",
        "streams/pipeline",
        "streams/pipeline/kinds",
        "streams/sql",
        "streams/spark",
        "streams/engine",
        "streams/event_time",
        "streams/stores",
        "streams",
        "common/kafka",
        "common/control",
        "common/monitoring",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common/code",
        "common/process",
        "common",
    ),
    "jobmanager": (
        "console",
        "deployment",
        "streams/pipeline",
        "common/kafka",
        "common/control",
        "common/monitoring",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common/process",
        "common",
    ),
    "admin": (
        "operations/savepoints",
        "operations",
        "deployment",
        "streams/testing",
        "streams/pipeline",
        "streams/pipeline/kinds",
        "streams/engine",
        "common/kafka",
        "common/control",
        "common/monitoring",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common/security",
        "common/pipelines",
        "common/process",
        "common",
    ),
    "admin/acls": ("common/control", "common/config", "common/pipelines", "common"),
    "admin/commands": (
        "admin/dev",
        "admin/rehearsal",
        "admin/acls",
        "admin",
        "operations/rehearsal",
        "operations/savepoints",
        "operations",
        "deployment",
        "streams/backfill",
        "streams/testing",
        "streams/pipeline",
        "streams/pipeline/kinds",
        "common/kafka",
        "common/control",
        "common/cluster",
        "common/config",
        "common/pipelines",
        "common/process",
        "common",
    ),
    "admin/rehearsal": (
        "admin/dev",
        "admin",
        "operations/rehearsal",
        "operations/savepoints",
        "operations",
        "deployment",
        "common/kafka",
        "common/cluster",
        "common/config",
        "common/pipelines",
        "common/process",
        "common",
    ),
    "admin/broker": ("admin", "common/security", "common/process", "common"),
    "admin/dev": (
        "admin/broker",
        "admin",
        "operations",
        "streams/pipeline",
        "streams/engine",
        "common/cluster",
        "common/protocol",
        "common/config",
        "common/pipelines",
        "common/code",
        "common/process",
        "common",
    ),
    "admin/quickstart": (
        "admin/broker",
        "admin/dev",
        "admin",
        "operations",
        "streams/pipeline",
        "common/kafka",
        "common/cluster",
        "common/config",
        "common/pipelines",
        "common/process",
        "common",
    ),
}
"""The folders that the files of a folder may import, in addition to their own."""
PACKAGES = {folder for folder in MAY_IMPORT if "/" not in folder}
CORES = (
    "jobmanager/state.py",
    "deployment/change.py",
    "deployment/plan.py",
    "deployment/renames.py",
    "deployment/other_code.py",
    "deployment/store_contents.py",
    "jobmanager/leadership.py",
    "jobmanager/ownership.py",
    "jobmanager/trial.py",
    "jobmanager/load_balancer.py",
    "jobmanager/heartbeat_controller.py",
    "streams/clocks.py",
    "streams/event_time/progress.py",
    "streams/event_time/input_time.py",
    "streams/event_time/writer_progress.py",
    "taskmanager/state.py",
    "taskmanager/thread_state.py",
    "taskmanager/task_entry.py",
)
VALUES = (
    "common/protocol/messages.py",
    "deployment/desired_state.py",
    "common/protocol/codec.py",
    "common/pipelines/pipeline.py",
    "common/pipelines/processors.py",
    "common/pipelines/specs.py",
    "common/pipelines/spreading.py",
    "common/typed_json.py",
    "common/tasks.py",
    "common/protocol/status.py",
    "common/tick.py",
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
SLOW = {"pyspark", "pyarrow", "py4j", "sqlglot"}


def sources() -> list[Path]:
    return [path for package in sorted(PACKAGES) for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of the modules that a file imports, wherever in the file."""
    for each in syntax(path).imports:
        yield from full_names(each)


def imported_at_start(path: Path) -> Iterator[str]:
    """Yield the full names of the modules that a file imports as soon as it is imported."""
    for each in syntax(path).imports:
        if each.at_start:
            yield from full_names(each)


def full_names(each: Import) -> Iterator[str]:
    yield each.module
    yield from (f"{each.module}.{name}" for name in each.names)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def importers(module: str) -> set[str]:
    return {
        name(path)
        for path in sources()
        if any(found == module or found.startswith(f"{module}.") for found in imported(path))
    }


@cache
def file_of(module: str) -> Path | None:
    """Return the file of one of our modules or packages, in the folder that holds it."""
    parts = module.split(".")
    is_engine = parts[0] == "kafka_pipeline" and not PACKAGES.isdisjoint(parts[1:2])
    target = ROOT.joinpath(*parts[is_engine:])
    files = (target.with_suffix(".py"), target / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def files(path: Path, *, for_types: bool = True) -> set[Path]:
    """Return the files of the project that a file imports; of a package, the submodules named.

    Without `for_types`, leave out what only type checkers import.
    """
    found = set[Path | None]()
    for each in syntax(path).imports:
        if each.for_types and not for_types:
            continue
        module = file_of(each.module)
        found |= {file_of(f"{each.module}.{name}") or module for name in each.names} or {module}
    return {file for file in found if file is not None} - {path}


def test_folders_import_what_they_may() -> None:
    wrong = [
        f"{name(path)} imports {name(found)}"
        for path in sources()
        for found in sorted(files(path))
        if found.parent != path.parent and name(found.parent) not in MAY_IMPORT[name(path.parent)]
    ]
    assert wrong == []


def test_no_folder_may_import_what_it_does_not() -> None:
    for folder, allowed in MAY_IMPORT.items():
        used = {name(f.parent) for path in (ROOT / folder).glob("*.py") for f in files(path)}
        assert set(allowed) <= used, f"{folder} imports nothing of {set(allowed) - used}"


def test_no_folders_import_each_other_in_a_circle() -> None:
    tuple(TopologicalSorter(MAY_IMPORT).static_order())


def test_no_files_import_each_other_in_a_circle() -> None:
    """Except for type checkers, and once: `Stream` has tables, and `Table.to_stream` a stream."""
    graph = {path: files(path, for_types=False) for path in sources()}
    graph[ROOT / "streams/dsl/table.py"].remove(ROOT / "streams/dsl/stream.py")
    tuple(TopologicalSorter(graph).static_order())


def test_only_common_kafka_imports_confluent_kafka() -> None:
    users = importers("confluent_kafka")
    assert users
    assert all(user.startswith("common/kafka/") for user in users), users


def test_consoles_and_metrics_have_one_user_each() -> None:
    users = {user for user in importers("kafka_pipeline.console") if "console/" not in user}
    assert users == {"jobmanager/command.py"}
    assert importers("prometheus_client") == {"common/monitoring/exposition.py"}


def test_only_those_who_run_spark_import_pyspark() -> None:
    users = importers("pyspark") - {"taskmanager/spark.py", "streams/backfill/spark_jobs.py"}
    assert users
    assert all(user.startswith(("streams/spark/", "streams/sql/")) for user in users), users


def test_what_needs_no_spark_starts_without_slow_libraries() -> None:
    """They take a while, so they are imported late, in a function."""
    modules = [each.place.partition(":")[0] for each in COMMANDS.values()]
    commands = [f"admin/{module.replace('.', '/')}.py" for module in modules]
    for entry in ("streams/api/__init__.py", "jobmanager/command.py", *commands):
        assert slow_imports(entry, SLOW) == []


@pytest.mark.parametrize("command", ["status", "top", "versions", "pause", "topics", "dlq"])
def test_small_commands_start_without_the_engine(command: str) -> None:
    entry = f"admin/commands/{command}.py"
    assert slow_imports(entry, {*SLOW, "numpy", "rocksdict", "starlette"}) == []


def slow_imports(entry: str, slow: Set[str]) -> list[str]:
    """Return the libraries that a file imports at its start, directly or not, and by which file."""
    found = []
    seen: set[Path] = set()
    waiting = [ROOT / entry]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        modules = set(imported_at_start(path))
        heavy = {module.split(".")[0] for module in modules} & slow
        found += [f"{entry} gets {each} by {name(path)}" for each in sorted(heavy)]
        waiting += [file for file in map(file_of, modules) if file is not None]
    return found


def test_cores_import_no_clock_thread_kafka_spark_or_chance() -> None:
    wrong = [
        f"{core} imports {module}"
        for core in (*CORES, *VALUES)
        for module in imported(ROOT / core)
        if module.split(".")[0] in IMPURE or module.startswith("kafka_pipeline.common.kafka")
    ]
    assert wrong == []


def test_what_cores_import_is_pure_too() -> None:
    assert [wrong for core in CORES for wrong in impure_imports(core)] == []


def impure_imports(core: str) -> Iterator[str]:
    """Yield what the files that a core imports, directly or not, import and must not."""
    seen: set[Path] = set()
    waiting = [ROOT / core]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        modules = set(imported(path))
        impure = {module.split(".")[0] for module in modules} & (IMPURE - {"pathlib", "os"})
        if impure:
            yield f"{core} gets {impure} by {name(path)}"
        found = {file_of(module) for module in modules}
        waiting += [file for file in found if file is not None and file.name != "__init__.py"]


def test_every_package_of_the_wheel_is_checked_and_is_a_folder_of_the_checkout() -> None:
    links = {path.name: path.resolve() for path in ROOT.glob("kafka_pipeline/*") if path.is_dir()}
    links.pop("__pycache__", None)
    assert links == {package: ROOT / package for package in PACKAGES}
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found == {*PACKAGES, "kafka_pipeline"}
