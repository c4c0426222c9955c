"""The sample files to start from, and the schemas that editors check them by."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from admin.schema import SchemaName, schema_file, schema_text
from common.errors import ConfigError, UnavailableError

_SCHEMAS = {schema_file(name): name for name in SchemaName}
_CONFIG = "config.yaml"
_NO_MODULES = "# modules: []        "
_NO_FOLDERS = "# python_path: []    "
_NO_CODE_OF_OURS = ".in"
"""The end of the names of Python files in templates."""


class Template(StrEnum):
    """What a new pipeline begins with."""

    BASIC = "basic"
    CLASS = "class"
    SQL = "sql"
    DSL = "dsl"
    JOIN = "join"


def samples(template: Template = Template.BASIC) -> dict[str, str]:
    """Return the texts of the files of a template, by their paths."""
    folder = files("admin").joinpath("templates")
    own = {
        each.name.removesuffix(_NO_CODE_OF_OURS): each.read_text(encoding="utf-8")
        for each in folder.joinpath(template).iterdir()
    }
    config = folder.joinpath(_CONFIG).read_text(encoding="utf-8")
    modules = [name.removesuffix(".py") for name in own if name.endswith(".py")]
    return {
        _CONFIG: _with_modules(config, modules) if modules else config,
        **dict(sorted(own.items())),
        **{path: schema_text(name) for path, name in _SCHEMAS.items()},
    }


def quickstart_pipeline() -> str:
    """Return the pipeline of the quickstart, a format string with the file of airports."""
    return files("admin").joinpath("templates", "quickstart.yaml").read_text(encoding="utf-8")


def write_samples(folder: Path, template: Template = Template.BASIC) -> list[Path]:
    """Write the samples into `folder`, which is created if missing, and return their paths.

    Raises ConfigError and writes none if one of them exists, and UnavailableError if the folder
    cannot be written.
    """
    texts = {folder / name: text for name, text in samples(template).items()}
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


def _with_modules(config: str, modules: Sequence[str]) -> str:
    """Return a config.yaml that allows modules next to it."""
    listed = ", ".join(f'"{module}"' for module in modules)
    replacements = {_NO_MODULES: f"modules: [{listed}]", _NO_FOLDERS: 'python_path: ["."]'}
    for line, instead in replacements.items():
        assert config.count(line) == 1
        config = config.replace(line, instead.ljust(len(line)))
    return config
