"""Builds the project as a wheel, and installs it into an environment of its own, offline."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 200
STRANGER = "raise RuntimeError('nobody imports this')\n"


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


def wheel_of(folder: Path) -> Path:
    """Build as scripts/setup.sh does, with the setuptools of this environment."""
    _pip("wheel", "--no-deps", "--no-build-isolation", "-q", "-w", "dist", ".", cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def install(wheel: Path, home: Path, strangers: Iterable[str] = ()) -> Path:
    """Make an environment with the wheel in `home`; return the folder of its commands.

    It shares the dependencies of this environment, by a `.pth` file: to install them would take
    minutes and a package index, and is pip's work. Python does not read the `.pth` files there, so
    an editable install of the clone is out of reach. `strangers` are names of other packages that
    are there too.
    """
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    python = home / "bin" / "python"
    paths = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    (packages / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for name in strangers:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(STRANGER)
    _pip("--python", python, "install", "--no-deps", "--no-index", "-q", wheel, cwd=home)
    return home / "bin"


def _pip(*arguments: object, cwd: Path) -> None:
    python = (sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check")
    run(*python, *arguments, cwd=cwd)
