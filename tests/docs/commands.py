"""Checks the command lines of the documentation against the parsers that will read them."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

import examples.flights.__main__
import kafka_pipeline.admin.quickstart.__main__
import kafka_pipeline.jobmanager.command
import kafka_pipeline.taskmanager.command
from kafka_pipeline.admin.app import app_with

ROOT = Path(__file__).parents[2]

TYPER_APPS = {
    "pipeline": app_with(),
    "jobmanager": kafka_pipeline.jobmanager.command.app,
    "taskmanager": kafka_pipeline.taskmanager.command.app,
    "./quickstart.sh": kafka_pipeline.admin.quickstart.__main__.app,
    "./examples/flights/run.sh": examples.flights.__main__.app,
}
# Programs that are not ours. An example with any other program is a mistake.
OTHERS = {
    *("cat", "cd", "chmod", "curl", "echo", "export", "git", "openssl", "source", "tar"),
    *("cp", "install", "ln", "useradd"),
    *("kafka-consumer-groups.sh", "kafka-transactions.sh"),
    *("debootstrap", "docker", "kubectl", "pip", "podman", "spark-class", "systemctl"),
}
_PYTEST_OPTIONS = {"-k", "-m", "-n", "-v", "-x"}


class WrongCommandError(Exception):
    """A command line that the program would refuse; the message has the line."""


class _Parsed(Exception):
    """The program has parsed its arguments, and would now begin to work."""


def check_command(words: Sequence[str]) -> None:
    """Raise WrongCommandError if the program that a command names does not take its arguments."""
    words = list(words)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    if not words:
        return
    program, arguments = words[0], words[1:]
    if program in ("kubectl", "podman") and "--" in arguments:
        check_command(arguments[arguments.index("--") + 1 :])
        return
    name = program if program.startswith("./") else Path(program).name
    try:
        _check(name, arguments)
    except WrongCommandError as error:
        raise WrongCommandError(f"{' '.join(words)}: {error}") from error


def _check(name: str, arguments: list[str]) -> None:
    if name in TYPER_APPS:
        check_typer(TYPER_APPS[name], name, arguments)
    elif name in ("python", "python3"):
        _check_python(arguments)
    elif name in ("pytest", "./test.sh"):
        _check_pytest(arguments)
    elif name.startswith("./"):
        _check_script(ROOT / name, arguments)
    elif name not in OTHERS and not name.startswith("$"):
        raise WrongCommandError(f"{name} is neither ours nor one of OTHERS in tests/docs")


@cache
def _parser(app: typer.Typer) -> Any:
    """Return the commands of an app, which parse their arguments and run nothing."""

    def stop(*_: Any, **__: Any) -> NoReturn:
        raise _Parsed

    command: Any = typer.main.get_command(app)
    waiting = [command]
    while waiting:
        each = waiting.pop()
        subcommands = list(getattr(each, "commands", {}).values())
        waiting += subcommands
        if not subcommands:
            each.callback = stop
    return command


def check_typer(app: typer.Typer, name: str, arguments: list[str]) -> None:
    """Parse arguments as the command does, and run nothing."""
    said = io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(said):
            _parser(app).main(arguments, prog_name=name)
    except _Parsed:
        return
    except SystemExit as end:
        if end.code != 0:
            raise WrongCommandError(said.getvalue()) from end


def _check_python(arguments: list[str]) -> None:
    if not arguments or arguments[0] == "-c":
        return
    if arguments[0] != "-m":
        # Pages change into a folder next to examples/, as the first tutorial does.
        if not (ROOT / arguments[0].removeprefix("../")).is_file():
            raise WrongCommandError("there is no such file")
        return
    module = arguments[1]
    if module in ("venv", "pip"):
        return
    if module == "pytest":
        _check_pytest(arguments[2:])
    elif importlib.util.find_spec(module) is None:
        raise WrongCommandError(f"there is no module {module}")
    elif module.startswith("benchmarks.") or module == "tests.chaos":
        _check_argparse(module, arguments[2:])


def _check_argparse(module: str, arguments: list[str]) -> None:
    is_folder = ROOT.joinpath(*module.split(".")).is_dir()
    main = importlib.import_module(f"{module}.__main__" if is_folder else module)
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        parse(parser, arguments)
        raise _Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        patch.setattr(sys, "argv", [module, *arguments])
        try:
            main.main()
        except _Parsed:
            return
        except SystemExit as end:
            if end.code != 0:
                raise WrongCommandError("its parser refuses this") from end
    raise WrongCommandError("it parses nothing")


def _check_pytest(arguments: list[str]) -> None:
    known = _PYTEST_OPTIONS | _own_pytest_options()
    for word in arguments:
        if word.startswith("-") and word.partition("=")[0] not in known:
            raise WrongCommandError(f"{word} is not an option of the tests")
        path = word.partition("::")[0]
        if word.startswith("tests/") and not (ROOT / path).exists():
            raise WrongCommandError(f"{path} does not exist")


@cache
def _own_pytest_options() -> set[str]:
    added = re.compile(r'addoption\(\s*"(--[a-z-]+)"')
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    return {option for text in texts for option in added.findall(text)}


def _check_script(script: Path, arguments: list[str]) -> None:
    if not script.is_file():
        raise WrongCommandError("there is no such script")
    text = script.read_text(encoding="utf-8")
    for word in arguments:
        if word.partition("=")[0] not in text:
            raise WrongCommandError(f"the script does not know {word}")
