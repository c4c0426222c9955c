"""The files of `pipeline dev`: the user's, and the config.yaml that is made of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kafka_pipeline.admin.broker.ports import find_free
from kafka_pipeline.admin.written_settings import read_settings, write_settings
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.streams.engine.code_snapshot import snapshot
from kafka_pipeline.streams.engine.user_files import source_files

_CONFIG = "config.yaml"
_WORK = ".pipeline-dev"
_CODE, _NEXT = "code", "next-code"
_TOP = "Made by `pipeline dev`, which writes it again at each start."
_DEFAULTS: Mapping[str, Any] = {
    "job_name": "dev",
    "parallelism": 2,
    "source_topic": "source_topic",
    "sink_topic": "sink_topic",
}
_NOT_TAKEN = ("kafka", "metrics_host", "console_port", "console_host", "state_host")
_NO_CODE = ("conftest", "setup", "test")
"""How the names of Python files begin that are next to a pipeline but not a part of it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """When the files of a project were saved, and how large they are; code by module."""

    pipeline: object
    own_config: object
    code: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Code:
    """The folders that the user's code is in, and its modules; `None` for all in the folder."""

    folders: tuple[Path, ...]
    modules: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run has its Kafka and its console, if there is one, and how many TaskManagers."""

    port: int
    console_port: int | None
    task_managers: int

    @classmethod
    def choose(cls, port: int, task_managers: int) -> Places:
        """Return places with a console at a free port, if what it needs is installed."""
        has_console = all(find_spec(package) for package in ("starlette", "uvicorn"))
        return cls(port, find_free(1)[0] if has_console else None, task_managers)


@dataclass(frozen=True, slots=True)
class Project:
    """A pipeline.yaml, and a config.yaml of the user's if there is one.

    The config.yaml that the daemons use is made next to these files, so that relative folders mean
    the same in it: `.pipeline-dev.yaml`. All else is in the folder `.pipeline-dev`.
    """

    pipeline_file: Path
    own_config: Path | None

    @property
    def folder(self) -> Path:
        """The folder that relative paths refer to."""
        return (self.own_config or self.pipeline_file).parent

    @property
    def config_file(self) -> Path:
        """The config.yaml of the daemons."""
        return self.folder / f"{_WORK}.yaml"

    @property
    def next_config_file(self) -> Path:
        """The config.yaml with which code is checked before daemons run it."""
        return self.folder / f"{_WORK}-next.yaml"

    @property
    def work_dir(self) -> Path:
        """The folder with the broker's data, the local state and the logs."""
        return self.folder / _WORK

    def log_file(self, name: str) -> Path:
        """Return where a process writes its log."""
        return self.work_dir / f"{name.replace(' ', '_')}.log"

    def code(self) -> Code:
        """Return where the user's code is.

        Raises `ConfigError` if the user's own config.yaml is wrong.
        """
        if self.own_config is None:
            return Code((self.folder,), None)
        config = load_config(self.own_config)
        return Code(config.python_path, config.modules)

    def write_config(self, places: Places, code: Code) -> Config:
        """Write the config.yaml of the daemons, and copy the code for them; return its content.

        Raises `ConfigError` if the user's own is wrong, and `UnavailableError` if the code cannot
        be copied.
        """
        settings = self._settings()
        settings |= {
            "server_ip": "127.0.0.1",
            "server_port": places.port,
            "tm_number": places.task_managers,
            "replication_factor": 1,
            "state_dir": f"{_WORK}/state",
            "log_format": "console",
            # A port of its own for each daemon: heartbeats and the log say which.
            "state_port": 0,
            "metrics_port": 0,
            "num_standby_replicas": min(
                settings.get("num_standby_replicas", 0), places.task_managers - 1
            ),
        }
        if places.console_port is not None:
            settings["console_port"] = places.console_port
        self._write(self.config_file, settings, self._copy(code, _CODE))
        return load_config(self.config_file)

    def prepare(self, code: Code) -> Path:
        """Copy the code as it is now; return a config.yaml with which it can be checked.

        What is checked is what runs after `adopt`, although more may be saved in the meantime.
        Raises `UnavailableError` if it cannot be copied.
        """
        self._write(self.next_config_file, self._written(), self._copy(code, _NEXT))
        return self.next_config_file

    def adopt(self, code: Code) -> None:
        """Let daemons that start from now on run what was prepared."""
        shutil.rmtree(self.work_dir / _CODE)
        (self.work_dir / _NEXT).rename(self.work_dir / _CODE)
        self._write(self.config_file, self._written(), self._copies(code, _CODE))

    def _copy(self, code: Code, name: str) -> list[str]:
        snapshot(code.folders, self.work_dir / name)
        return self._copies(code, name)

    @staticmethod
    def _copies(code: Code, name: str) -> list[str]:
        return [f"{_WORK}/{name}/{number}" for number in range(len(code.folders))]

    def _written(self) -> dict[str, Any]:
        """Return the daemons' settings, with the modules that there are now."""
        settings = read_settings(self.config_file)
        return settings if self.own_config else settings | {"modules": self._own_modules()}

    @staticmethod
    def _write(file: Path, settings: Mapping[str, Any], python_path: list[str]) -> None:
        write_settings(file, {**settings, "python_path": python_path}, _TOP)

    def forget(self) -> None:
        """Delete the data of former runs, unless one still holds the folder's lock."""
        for each in ("broker", "state"):
            if (self.work_dir / each).exists():
                shutil.rmtree(self.work_dir / each)

    def _settings(self) -> dict[str, Any]:
        if self.own_config is None:
            return {**_DEFAULTS, "modules": self._own_modules()}
        config = load_config(self.own_config)
        given = read_settings(self.own_config)
        settings = {key: value for key, value in given.items() if key not in _NOT_TAKEN}
        # A number that comes from the environment is text in the file.
        settings["num_standby_replicas"] = config.num_standby_replicas
        if isinstance(spark := settings.get("spark"), dict):
            settings["spark"] = {key: value for key, value in spark.items() if key != "master"}
        return settings

    def look(self, code: Code) -> Saved:
        """Return what is saved now, as far as times and sizes of files show.

        Equal values mean that nothing was saved in between.
        """
        modules = self._own_modules() if code.modules is None else code.modules
        return Saved(
            _stamp(self.pipeline_file),
            _stamp(self.own_config) if self.own_config else None,
            {name: _stamp(file) for name, file in source_files(modules, code.folders).items()},
        )

    def _own_modules(self) -> list[str]:
        """Return the modules and packages next to the pipeline, without tests and settings."""
        files = {path.stem for path in self.folder.glob("*.py")}
        packages = {path.parent.name for path in self.folder.glob("*/__init__.py")}
        found = files | packages
        return sorted(
            name for name in found if name.isidentifier() and not name.startswith(_NO_CODE)
        )


def find_project(pipeline: Path, config: Path | None) -> Project:
    """Return the project of a pipeline.yaml; its config.yaml is next to it, if there is one.

    Raises `ConfigError` if there is no pipeline.yaml, and `UnavailableError` if nothing can be
    written next to it.
    """
    file = pipeline.expanduser().absolute()
    if not file.is_file():
        raise ConfigError(
            f"{pipeline} is not a file: name your pipeline.yaml, or make one with "
            "`pipeline init --template class`"
        )
    own = config or (file.parent / _CONFIG if (file.parent / _CONFIG).is_file() else None)
    project = Project(file, own and own.expanduser().absolute())
    try:
        project.work_dir.mkdir(exist_ok=True)
        # So that version control does not show what is in it.
        (project.work_dir / ".gitignore").write_text("*\n", encoding="ascii")
    except OSError as error:
        raise UnavailableError(f"{project.work_dir} cannot be used: {error.strerror}") from error
    return project


def _stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
