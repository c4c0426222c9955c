"""The project as a wheel in somebody else's environment, with no clone in reach."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.kafka.bulk import BulkWriter, read_committed
from tests.command_run import CommandRun
from tests.docs.pages import blocks
from tests.wheels import ROOT, TIMEOUT_S, install, run, wheel_of

pytestmark = [pytest.mark.integration, pytest.mark.long]

ENGINE = "kafka_pipeline"
FOREIGN = (
    "admin",
    "common",
    "console",
    "deployment",
    "jobmanager",
    "operations",
    "streams",
    "taskmanager",
)
"""Packages of others, which happen to have the names of the folders of the checkout."""
OWN_CODE = """
from common.texts import loud
from kafka_pipeline import Processor

class Shout(Processor):
    def process(self, record):
        self.context.forward(record.with_value(loud(record.value)))
"""
OWN_COMMON = "def loud(text):\n    return text.upper()\n"
OWN_TEST = """
from kafka_pipeline import TopologyBuilder
from kafka_pipeline.testing import TopologyTestDriver
from shop.shout import Shout

builder = TopologyBuilder()
builder.add_source("read", "in")
builder.add_processor("shout", Shout, ["read"])
builder.add_sink("write", "out", ["shout"])
with TopologyTestDriver(builder.build()) as driver:
    driver.create_input_topic("in").pipe_input(b"k", b"hello")
    print(driver.create_output_topic("out").read_key_values())
"""
OWN_TYPES = ROOT / "tests" / "user_code" / "typed.py"
"""Has mistakes with the errors that they must lead to; strict mode reports a comment in vain."""
PIPELINE = """
- {id: Shout, type: "shop.shout:Shout", to: [Named]}
- id: Named
  type: sql
  query: SELECT name AS value FROM input JOIN names ON key = code
  tables: {names: {format: csv, path: names.csv, schema: "code STRING, name STRING"}}
  to: [sink]
"""
WHERE = "import kafka_pipeline; print(kafka_pipeline.__file__)"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source: a build leaves files behind, and takes up old ones."""
    folder = tmp_path_factory.mktemp("build")
    for package in (*FOREIGN, ENGINE):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, symlinks=True, ignore=without)
    for file in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / file, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return wheel_of(source)


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a new environment that the wheel was installed in.

    There are packages of others too, with names that the engine's folders have in a checkout.
    """
    return install(wheel, tmp_path_factory.mktemp("environment"), FOREIGN)


@pytest.fixture
def project(tmp_path: Path, commands: Path) -> Path:
    """The folder of a user's project with code of their own."""
    folder = tmp_path / "project"
    folder.mkdir()
    run(commands / "pipeline", "init", cwd=folder)
    (folder / "code" / "shop").mkdir(parents=True)
    (folder / "code" / "shop" / "shout.py").write_text(OWN_CODE)
    (folder / "code" / "common").mkdir()
    (folder / "code" / "common" / "__init__.py").write_text("")
    (folder / "code" / "common" / "texts.py").write_text(OWN_COMMON)
    (folder / "names.csv").write_text("k,Kay\n")
    return folder


def contents(folder: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for place, _, names in os.walk(folder / ENGINE, followlinks=True)
        for path in (Path(place) / name for name in names)
        if path.suffix != ".pyc"
    }


def test_wheel_has_all_files_of_the_engine_and_one_name(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert contents(tmp_path) == contents(ROOT)
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".dist-info"} == {ENGINE}


def test_wheel_of_an_sdist_is_the_same(source: Path, wheel: Path, tmp_path: Path) -> None:
    build = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"
    sdist = run(sys.executable, "-W", "ignore", "-c", build, cwd=source).splitlines()[-1]
    with tarfile.open(source / "dist" / sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    with ZipFile(wheel) as one, ZipFile(wheel_of(unpacked)) as other:
        assert one.namelist() == other.namelist()


def test_engine_is_that_of_the_wheel(commands: Path, tmp_path: Path) -> None:
    place = run(commands / "python", "-c", WHERE, cwd=tmp_path).strip()
    assert Path(place).is_relative_to(commands.parent)


@pytest.mark.parametrize("command", ["pipeline", "jobmanager", "taskmanager"])
def test_commands_are_there(command: str, commands: Path, tmp_path: Path) -> None:
    assert "Usage: " in run(commands / command, "--help", cwd=tmp_path)


def test_samples_are_valid_as_they_are(commands: Path, project: Path) -> None:
    told = run(commands / "pipeline", "validate", "config.yaml", "pipeline.yaml", cwd=project)
    assert told.startswith("ok: ")


def test_own_class_and_a_query_are_checked_and_described(commands: Path, project: Path) -> None:
    with (project / "config.yaml").open("a") as config:
        config.write("modules: [shop.shout]\npython_path: [code]\n")
    (project / "pipeline.yaml").write_text(PIPELINE)
    files = (project / "config.yaml", project / "pipeline.yaml")
    elsewhere = project.parent
    told = run(commands / "pipeline", "validate", *files, cwd=elsewhere)
    assert told.startswith("ok: 2 processors, ")
    assert "Shout_Named" in run(commands / "pipeline", "describe", *files, cwd=elsewhere)


def test_own_code_runs_on_the_test_driver(commands: Path, project: Path) -> None:
    assert run(commands / "python", "-c", OWN_TEST, cwd=project / "code") == "[(b'k', b'HELLO')]\n"


def test_own_code_runs_on_a_cluster(commands: Path, project: Path, bootstrap_servers: str) -> None:
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    job = f"installed_{os.getpid()}"
    settings = {
        "server_ip": host, "server_port": port, "job_name": job, "tm_number": 1, "parallelism": 1,
        "replication_factor": 1, "source_topic": f"source_{job}", "sink_topic": f"sink_{job}",
        "modules": "[shop.shout]", "python_path": "[code]",
    }  # fmt: skip
    (project / "config.yaml").write_text("".join(f"{k}: {v}\n" for k, v in settings.items()))
    (project / "pipeline.yaml").write_text('- {id: Shout, type: "shop.shout:Shout", to: [sink]}')
    config = load_config(project / "config.yaml")
    files = [str(project / "config.yaml"), str(project / "pipeline.yaml")]
    words = {
        "jobmanager": [str(commands / "jobmanager"), *files],
        "taskmanager": [str(commands / "taskmanager"), "0", "1", files[0]],
    }
    daemons = [Daemon(name, each, project / f"{name}.log") for name, each in words.items()]
    signals = Signals()
    try:
        for daemon in daemons:
            daemon.start(signals)
        writer = BulkWriter(config, config.source_topic)
        writer.write([(b"k", b"hello")])
        writer.flush(TIMEOUT_S)
        deadline_s = time.monotonic() + TIMEOUT_S
        found: list[bytes | None] = []
        while not found and time.monotonic() < deadline_s:
            time.sleep(0.2)
            found = [v for b in read_committed(config, config.sink_topic, 1) for v in b.values]
        assert found == [b"HELLO"], [each.log_file.read_text()[-3000:] for each in daemons]
    finally:
        for daemon in daemons:
            daemon.end()


def test_page_about_own_projects_leads_to_a_result(
    commands: Path,
    tmp_path: Path,
    runs: list[CommandRun],
    record_property: Callable[[str, object], None],
) -> None:
    """The files, the commands and what they print are those of the page."""
    page = list(blocks(ROOT / "docs" / "how-to" / "own_project.md"))
    shop, began_s = tmp_path / "shop", time.monotonic()
    for block in page:
        if name := re.match(r"# (\S+\.(?:py|yaml)) *\n", block.text):
            file = shop / name[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
    assert {each.name for each in shop.iterdir()} == {
        "config.yaml",
        "pipeline.yaml",
        "src",
        "tests",
    }
    texts = [block.text for block in page]
    assert "pipeline dev\n" in texts
    dev = CommandRun(tmp_path, str(commands / "pipeline"), "dev", cwd=shop)
    runs.append(dev)
    (said,) = [text for text in texts if text.startswith("dev           | in another terminal")]
    *lines, applied = said.splitlines()
    dev.wait_for(lines[-1], TIMEOUT_S)
    assert "\n".join(lines) in dev.output
    dev.wait_for(applied.partition(" after ")[0], TIMEOUT_S)

    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    write, read, *_ = [line.partition("|")[2] for line in lines[1:-1]]
    subprocess.run(write, shell=True, cwd=shop, env=environment, timeout=TIMEOUT_S, check=True)
    with subprocess.Popen(
        f"exec {read}", shell=True, cwd=shop, env=environment, stdout=subprocess.PIPE, text=True
    ) as reading:
        assert reading.stdout is not None
        first = reading.stdout.readline()
        reading.kill()
    assert first.split()[-2:] == ["ann", "12"]
    seconds = round(time.monotonic() - began_s, 1)
    record_property("seconds_to_first_result", seconds)
    print(f"the first result came after {seconds} s, installation not included")

    get = "pipeline state get .pipeline-dev.yaml Total ann"
    assert get in (ROOT / "docs" / "how-to" / "own_project.md").read_text()
    state = run(commands / "pipeline", *get.split()[1:], cwd=shop)
    assert "12" in state
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(timeout=TIMEOUT_S) == 130, dev.output

    assert "1 passed" in run(commands / "python", "-m", "pytest", cwd=shop)
    (checked,) = [text for text in texts if text.startswith("$ pipeline validate")]
    command, told = checked.splitlines()
    words = command.removeprefix("$ pipeline ").split()
    assert run(commands / "pipeline", *words, cwd=shop) == f"{told}\n"


def test_own_code_is_checked_by_strict_mypy(commands: Path, tmp_path: Path) -> None:
    shutil.copy(OWN_TYPES, tmp_path / "words.py")
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", commands / "python")
    assert "no issues found" in run(*mypy, "words.py", cwd=tmp_path)
    (tmp_path / "wrong.py").write_text("from kafka_pipeline import NoSuchName\n")
    done = subprocess.run([*mypy, "wrong.py"], cwd=tmp_path, capture_output=True, text=True)
    assert 'Module "kafka_pipeline" has no attribute "NoSuchName"' in done.stdout
