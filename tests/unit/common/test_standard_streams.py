"""Standard streams that were closed when a command was started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pipeline.admin.samples import write_samples
from tests.small_config import SMALL_CONFIG


def run_closed(words: list[str], folder: Path) -> int:
    """Run a command without any of the three streams; return its exit code."""
    name, *arguments = words
    module = {"pipeline": "admin"}.get(name, name)
    code = f"from kafka_pipeline.{module}.cli import main; main()"
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    command = [*shell, sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, check=False).returncode


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ("pipeline describe config.yaml pipeline.yaml", 0),
        ("pipeline describe config.yaml none.yaml", 2),
        ("taskmanager 0 1 no_folder.yaml", 3),
        ("jobmanager none.yaml pipeline.yaml", 2),
    ],
)
def test_a_command_without_its_streams_ends_as_with_them(
    words: str, exit_code: int, tmp_path: Path
) -> None:
    write_samples(tmp_path)
    (tmp_path / "no_folder.yaml").write_text(f"{SMALL_CONFIG}state_dir: /dev/null")
    assert run_closed(words.split(), tmp_path) == exit_code


def test_help_of_a_terminal_that_knows_no_width_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was empty: some programs that run commands set `COLUMNS` to 0."""
    monkeypatch.setenv("COLUMNS", "0")
    code = "from kafka_pipeline.admin.cli import main; main()"
    help_ = subprocess.check_output([sys.executable, "-c", code, "init", "--help"], text=True)
    assert "Write a sample config.yaml" in help_


def test_what_a_child_prints_goes_to_no_file_that_was_opened(tmp_path: Path) -> None:
    code = """
import subprocess
from pathlib import Path
from kafka_pipeline.common.process.standard_streams import make_usable
make_usable()
with Path("data").open("wb") as file:
    file.write(b"data")
    file.flush()
    subprocess.run("echo lost; echo lost >&2", shell=True, check=True)
"""
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    subprocess.run([*shell, sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "data").read_bytes() == b"data"
