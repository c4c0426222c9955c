"""Where a shadow has its files: next to the job's config.yaml, which may have relative paths."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.written_settings import read_settings, write_settings
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.operations.rehearsal.shadow import shadow_name, shadow_settings

_TOP = "Made by `pipeline rehearse`, which deletes it at its end."


@dataclass(frozen=True, slots=True)
class ShadowPlace:
    """The config.yaml of a shadow, and the folder for all else: logs, the savepoint, state."""

    own_config: Path
    name: str

    @classmethod
    def of(cls, own_config: Path, config: Config) -> ShadowPlace:
        """Return the place for the job of a config.yaml."""
        return cls(own_config.expanduser().absolute(), f".{shadow_name(config.job_name)}")

    @property
    def config_file(self) -> Path:
        """The config.yaml of the shadow."""
        return self.own_config.with_name(f"{self.name}.yaml")

    @property
    def folder(self) -> Path:
        """The folder for all else."""
        return self.own_config.with_name(self.name)

    @property
    def lock_file(self) -> Path:
        """The file whose lock a rehearsal holds, until all of its processes have ended."""
        return self.folder / ".lock"

    @property
    def savepoint(self) -> Path:
        """Where the savepoint is while the shadow is made."""
        return self.folder / "savepoint"

    @property
    def ends(self) -> Path:
        """Where the ends of the job's outputs are noted."""
        return self.folder / "ends.json"

    def log_file(self, name: str) -> Path:
        """Return where a process writes its log."""
        return self.folder / f"{name.replace(' ', '_')}.log"

    def make(self) -> None:
        """Make the folder, for its owner only. Raises `UnavailableError` if it cannot be made."""
        try:
            self.folder.mkdir(0o700, exist_ok=True)
            # So that version control does not show what is in it.
            (self.folder / ".gitignore").write_text("*\n", encoding="ascii")
        except OSError as error:
            raise UnavailableError(f"{self.folder} cannot be used: {error.strerror}") from error

    def write_config(self, config: Config, task_managers: int) -> Config:
        """Write the config.yaml of the shadow; return its content.

        Raises `UnavailableError` if it cannot be written.
        """
        given = read_settings(self.own_config)
        settings = shadow_settings(given, config, task_managers, f"{self.name}/state")
        try:
            write_settings(self.config_file, settings, _TOP)
        except OSError as error:
            raise UnavailableError(f"{self.config_file} cannot be written: {error}") from error
        return load_config(self.config_file)

    def remove_savepoint(self) -> None:
        """Delete the savepoint, once the shadow is made of it."""
        shutil.rmtree(self.savepoint, ignore_errors=True)
        self.ends.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete all but the logs, which may explain something, and the file of the lock."""
        self.remove_savepoint()
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        self.config_file.unlink(missing_ok=True)
