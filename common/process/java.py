"""Finds a Java that Spark and the local Kafka broker can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.common.errors import UnavailableError

MIN_JAVA_VERSION = 17
"""The oldest feature release that Spark 4 and Kafka 4 run on."""

_HOW_TO_GET_IT = (
    "Install one (Debian, Ubuntu 24.04 and later: `apt install default-jre-headless`; "
    f"macOS: `brew install openjdk@{MIN_JAVA_VERSION}`), "
    "or point JAVA_HOME to one that is installed."
)
_ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that could be started."""

    executable: Path
    """The command to run."""
    home: Path
    """The value of JAVA_HOME for programs, such as Spark, that look there first."""
    version: int
    """The feature release: 8, 11, 17, 21…"""


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the first Java that is new enough: the one in JAVA_HOME, then the one on the PATH.

    Starts each candidate once to ask for its version, which takes about 0.1 s.

    Args:
        environ: where JAVA_HOME and PATH are looked up; the process's environment by default.

    Raises:
        UnavailableError: there is none, or none is new enough; the message names what was found.
    """
    environ = os.environ if environ is None else environ
    rejected: list[str] = []
    for executable in _candidates(environ):
        java = _ask(executable, environ)
        if java is None:
            rejected.append(f"{executable} is missing or does not run")
        elif java.version < MIN_JAVA_VERSION:
            rejected.append(f"{executable} is Java {java.version}")
        else:
            return java
    found = " and ".join(rejected) or "there is none in JAVA_HOME and none on the PATH"
    raise UnavailableError(
        f"Spark and Kafka need Java {MIN_JAVA_VERSION} or later, but {found}. {_HOW_TO_GET_IT}"
    )


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    candidates: list[Path] = []
    if java_home := environ.get("JAVA_HOME"):
        candidates.append(Path(java_home, "bin", "java"))
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        candidates.append(Path(on_path))
    return list(dict.fromkeys(candidates))


def _ask(executable: Path, environ: Mapping[str, str]) -> Java | None:
    """Ask a Java for its version and home; `None` if it fails, as macOS's placeholder does."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(environ),
            timeout=_ANSWER_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings = answer.stdout + answer.stderr
    # The specification version is "1.8" for Java 8, and just "17" since Java 9.
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", settings, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", settings, re.MULTILINE)
    if version is None or home is None:
        return None
    return Java(executable=executable, home=Path(home[1]), version=int(version[1]))
