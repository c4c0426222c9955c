"""Which Java is used, and the error without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import find_java


def _install(home: Path, specification: str) -> Path:
    """Put a program that answers like Java into `home`/bin and return that folder."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        "cat >&2 <<END\n"
        "Picked up JAVA_TOOL_OPTIONS: -Dx=y\n"
        "Property settings:\n"
        f"    java.home = {home}\n"
        f"    java.specification.version = {specification}\n"
        "    java.vm.specification.version = 99\n"
        "END\n"
    )
    executable.chmod(0o755)
    return executable.parent


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    _install(tmp_path / "home", "21")
    on_path = _install(tmp_path / "path", "17")

    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{on_path}:/usr/bin:/bin"})

    assert (java.version, java.home) == (21, tmp_path / "home")
    assert java.executable == tmp_path / "home" / "bin" / "java"


def test_the_path_is_used_when_java_home_is_too_old(tmp_path: Path) -> None:
    _install(tmp_path / "home", "1.8")
    on_path = _install(tmp_path / "path", "17")

    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{on_path}:/usr/bin:/bin"})

    assert java.executable == on_path / "java"
    assert java.home == tmp_path / "path"


@pytest.mark.parametrize(("specification", "version"), [("1.8", 8), ("11", 11), ("16", 16)])
def test_an_old_java_is_named_with_its_version(
    tmp_path: Path, specification: str, version: int
) -> None:
    on_path = _install(tmp_path, specification)

    with pytest.raises(UnavailableError, match=rf"{on_path}/java is Java {version}\. Install"):
        find_java({"PATH": f"{on_path}:/usr/bin:/bin"})


def test_a_java_that_is_in_java_home_and_on_the_path_is_named_once(tmp_path: Path) -> None:
    on_path = _install(tmp_path, "11")

    with pytest.raises(UnavailableError, match=rf"but {on_path}/java is Java 11\. Install"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": f"{on_path}:/usr/bin:/bin"})


def test_no_java_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as error:
        find_java({"PATH": str(tmp_path)})

    assert "Java 17 or later" in str(error.value)
    assert "none on the PATH" in str(error.value)
    assert "apt install default-jre-headless" in str(error.value)
    assert "brew install openjdk@17" in str(error.value)
    assert error.value.exit_code == 3


def test_a_placeholder_that_only_fails_counts_as_none(tmp_path: Path) -> None:
    placeholder = tmp_path / "java"
    placeholder.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    placeholder.chmod(0o755)

    with pytest.raises(UnavailableError, match="is missing or does not run"):
        find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(tmp_path)})
