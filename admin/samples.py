"""The sample files to start from, and the schemas that editors check them by."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from kafka_pipeline.admin.schema import SchemaName, schema_file, schema_text
from kafka_pipeline.common.errors import ConfigError, UnavailableError

_SCHEMAS = {schema_file(name): name for name in SchemaName}
_CONFIG = "config.yaml"
_NO_MODULES = "# modules: []        "
_NO_FOLDERS = "# python_path: []    "
_JOB = "job_1"
"""The job's name in templates."""
_LONGEST_JOB = 60
"""How long a job's name is made: the names of its topics end with it, and have 249 characters."""
_NO_CODE_OF_OURS = ".in"
"""The end of the names of Python files in templates."""


class Template(StrEnum):
    """What a new pipeline begins with."""

    BASIC = "basic"
    CLASS = "class"
    SQL = "sql"
    DSL = "dsl"
    JOIN = "join"


def samples(template: Template = Template.BASIC, job: str = "") -> dict[str, str]:
    """Return the texts of the files of a template, by their paths; `job` names the job."""
    folder = files("kafka_pipeline.admin").joinpath("templates")

    def text(file: Traversable) -> str:
        return file.read_text(encoding="utf-8").replace(_JOB, job or _JOB)

    own = {
        each.name.removesuffix(_NO_CODE_OF_OURS): text(each)
        for each in folder.joinpath(template).iterdir()
    }
    config = text(folder.joinpath(_CONFIG))
    modules = [name.removesuffix(".py") for name in own if name.endswith(".py")]
    return {
        _CONFIG: _with_modules(config, modules) if modules else config,
        **dict(sorted(own.items())),
        **{path: schema_text(name) for path, name in _SCHEMAS.items()},
    }


def quickstart_pipeline() -> str:
    """Return the pipeline of the quickstart, a format string with the file of airports."""
    file = files("kafka_pipeline.admin").joinpath("templates", "quickstart.yaml")
    return file.read_text(encoding="utf-8")


def write_samples(folder: Path, template: Template = Template.BASIC) -> list[Path]:
    """Write the samples into `folder`, which is created if missing, and return their paths.

    Raises ConfigError and writes none if one of them exists, and UnavailableError if the folder
    cannot be written.
    """
    texts = {folder / name: text for name, text in samples(template, job_of(folder)).items()}
    existing = [str(path) for path in texts if os.path.lexists(path)]
    if existing:
        raise ConfigError(
            f"already there: {', '.join(existing)}; nothing was written, "
            "move them away or name another folder"
        )
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # "x" does not overwrite a file that appeared since the check above.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UnavailableError(f"cannot write to {folder}: {error.strerror}") from error
    return [*texts]


def job_of(folder: Path) -> str:
    """Return the name of the job in a folder: that of the folder, as far as Kafka takes it.

    Two jobs of one name on one Kafka would be versions of one pipeline. "" if nothing is left.
    """
    name = re.sub(r"[^a-zA-Z0-9._-]+", "_", folder.resolve().name).strip("._-")
    return name[:_LONGEST_JOB]


def _with_modules(config: str, modules: Sequence[str]) -> str:
    """Return a config.yaml that allows modules next to it."""
    listed = ", ".join(f'"{module}"' for module in modules)
    replacements = {_NO_MODULES: f"modules: [{listed}]", _NO_FOLDERS: 'python_path: ["."]'}
    for line, instead in replacements.items():
        assert config.count(line) == 1
        config = config.replace(line, instead.ljust(len(line)))
    return config
