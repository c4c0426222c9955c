"""The project as a wheel in somebody else's environment, with no clone in reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PACKAGES = ("admin", "common", "console", "jobmanager", "operations", "streams", "taskmanager")
TIMEOUT_S = 200
OWN_CODE = """
from streams import Processor

class Shout(Processor):
    def process(self, record):
        self.context.forward(record.with_value(record.value.upper()))
"""
PIPELINE = """
- {id: Shout, type: "shop.shout:Shout", to: [Named]}
- id: Named
  type: sql
  query: SELECT name AS value FROM input JOIN names ON key = code
  tables: {names: {format: csv, path: names.csv, schema: "code STRING, name STRING"}}
  to: [sink]
"""
WHERE = """
import admin, common, console, jobmanager, operations, streams, taskmanager
for package in (admin, common, console, jobmanager, operations, streams, taskmanager):
    print(package.__file__)
"""


def run(*command: object, cwd: Path) -> str:
    """Run a command outside of the clone; return what it prints, which is no warning."""
    foreign = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def pip(*arguments: object, cwd: Path) -> None:
    python = (sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check")
    run(*python, *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel from a copy of the source: a build leaves files behind, and takes up old ones."""
    folder = tmp_path_factory.mktemp("build")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / file, folder)
    # As in scripts/setup.sh, the setuptools of this environment builds it.
    pip("wheel", "--no-deps", "--no-build-isolation", "-q", "-w", "dist", ".", cwd=folder)
    (built,) = (folder / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a new environment that the wheel was installed in.

    It shares the dependencies of this environment, by a `.pth` file: to install them would take
    minutes and a package index, and is pip's work. Python does not read the `.pth` files there, so
    an editable install of the clone is out of reach.
    """
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    paths = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    (packages / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip("--python", python, "install", "--no-deps", "--no-index", "-q", wheel, cwd=home)
    return home / "bin"


@pytest.fixture
def project(tmp_path: Path, commands: Path) -> Path:
    """The folder of a user's project with code of their own."""
    folder = tmp_path / "project"
    folder.mkdir()
    run(commands / "pipeline", "init", cwd=folder)
    (folder / "code" / "shop").mkdir(parents=True)
    (folder / "code" / "shop" / "shout.py").write_text(OWN_CODE)
    (folder / "names.csv").write_text("k,Kay\n")
    return folder


def contents(folder: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for package in PACKAGES
        for path in (folder / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_wheel_has_all_files_of_the_packages(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert contents(tmp_path) == contents(ROOT)


def test_packages_are_those_of_the_wheel(commands: Path, tmp_path: Path) -> None:
    places = run(commands / "python", "-c", WHERE, cwd=tmp_path).splitlines()
    assert len(places) == len(PACKAGES)
    assert all(Path(place).is_relative_to(commands.parent) for place in places), places


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
