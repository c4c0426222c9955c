"""Goes through the blocks of a page as its reader would: writes the files, runs the commands."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.testing.suites import run_suite
from tests.docs.commands import ROOT, check_command
from tests.docs.pages import Block, Example, blocks, examples
from tests.in_process import invoke

RUN = ("init", "validate", "describe", "test")
"""The commands of `pipeline` that need neither Kafka nor Spark, so examples of them are run."""

_FILE_NAME = re.compile(r"^# (?P<name>[\w/]+\.(?:py|yaml))$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_ANYTHING = "…"


class Story:
    """One page, in a folder of its own that begins empty."""

    def __init__(
        self, page: Path, folder: Path, patch: pytest.MonkeyPatch, drivers: Callable[..., Any]
    ) -> None:
        """Take the page; `drivers` is the fixture `topology_test_driver` for its tests."""
        self._page = page
        self._folder = folder
        self._patch = patch
        self._drivers = drivers
        self._modules: dict[str, str] = {}
        self._given: tuple[Mapping[str, Any], str] = ({}, "")

    def run(self) -> None:
        """Check every block. Raises an AssertionError that says which one is wrong, and why."""
        self._patch.chdir(self._folder)
        self._patch.setattr(sys, "dont_write_bytecode", True)
        with _imports_undone():
            for block in blocks(self._page):
                check = self._checks().get(block.language)
                if check is None:
                    continue
                try:
                    check(block)
                except Exception as error:
                    raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error

    def _checks(self) -> Mapping[str, Callable[[Block], None]]:
        return {
            "python": self._python,
            "yaml": self._yaml,
            "sh": self._shell,
            "console": self._shell,
        }

    def _python(self, block: Block) -> None:
        ast.parse(block.text)
        name = self._write(block)
        if block.excuse:
            return
        if name is None:
            namespace: dict[str, Any] = {"__name__": "example"}
            exec(compile(block.text, str(block), "exec"), namespace)
        else:
            namespace = vars(self._import(Path(name)))
        for test, found in list(namespace.items()):
            if test.startswith("test_"):
                wanted = found.__code__.co_varnames[: found.__code__.co_argcount]
                found(*[{"topology_test_driver": self._drivers}[each] for each in wanted])

    def _import(self, path: Path) -> ModuleType:
        if not path.stem.startswith("test_"):
            self._modules[path.stem] = str(path.parent)
        self._patch.syspath_prepend(str(self._folder / path.parent))
        sys.modules.pop(path.stem, None)
        importlib.invalidate_caches()
        return importlib.import_module(path.stem)

    def _write(self, block: Block) -> str | None:
        """Write a block to the file that its first line names, and return that name."""
        named = _FILE_NAME.match(block.text)
        if named is None:
            return None
        path = self._folder / named["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return named["name"]

    def _yaml(self, block: Block) -> None:
        content = yaml.safe_load(block.text)
        if block.excuse:
            return
        for variable in _VARIABLE.findall(block.text):
            self._patch.setenv(variable, "example")
        if isinstance(content, dict) and "tests" in content:
            self._suite(block)
        elif is_pipeline(content):
            path = self._folder / "pipeline.yaml"
            path.write_text(block.text, encoding="utf-8")
            load_pipeline(path, load_config(self._config()), with_classes=True)
        else:
            assert isinstance(content, dict), "neither a pipeline nor a config.yaml nor a suite"
            self._given = (content, block.text)
            load_config(self._config())

    def _config(self) -> Path:
        """Write a config.yaml: what the page gives, and for the rest the sample's keys."""
        given, text = self._given
        path = self._folder / "config.yaml"
        sample = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
        ours = {"modules": list(self._modules), "python_path": [*set(self._modules.values())]}
        rest = {key: value for key, value in (sample | ours).items() if key not in given}
        path.write_text((yaml.safe_dump(rest) if rest else "") + text, encoding="utf-8")
        return path

    def _suite(self, block: Block) -> None:
        path = self._folder / "tests.yaml"
        path.write_text(block.text, encoding="utf-8")
        self._config()
        problems = [result.problem for result in run_suite(path) if result.problem]
        assert not problems, problems

    def _shell(self, block: Block) -> None:
        for example in examples(block):
            for command in example.commands:
                check_command(command)
            if example.heredoc is not None:
                name, text = example.heredoc
                (self._folder / name).write_text(text, encoding="utf-8")
            elif block.language == "console" and not block.excuse:
                self._console(example)

    def _console(self, example: Example) -> None:
        """Run what can be run here, and compare what it prints with what the page shows."""
        printed = []
        for command in example.commands:
            if command[0] == "cd":
                self._folder = self._folder / command[1]
                self._patch.chdir(self._folder)
            elif command[0] == "pipeline" and command[1] in RUN:
                result = invoke(*command[1:])
                printed += result.output.splitlines()
            else:
                return
        assert _is_shown(printed, example.output), f"it prints {printed}"


def is_pipeline(content: Any) -> bool:
    if isinstance(content, dict):
        return "processors" in content
    return isinstance(content, list) and all("id" in item for item in content)


def _is_shown(printed: list[str], shown: tuple[str, ...]) -> bool:
    lines = [line.rstrip() for line in shown]
    while lines and not lines[-1]:
        lines.pop()
    pattern = r"\n".join(r"(.*\n?)*?.*" if line == _ANYTHING else re.escape(line) for line in lines)
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in printed)) is not None


@contextmanager
def _imports_undone() -> Iterator[None]:
    """Forget the modules that a page's code made, so that the next page has its own."""
    modules, path = dict(sys.modules), list(sys.path)
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if name not in modules and str(getattr(module, "__file__", "")).startswith("/tmp"):
                del sys.modules[name]
        sys.modules.update(modules)
        sys.path[:] = path
        importlib.invalidate_caches()
