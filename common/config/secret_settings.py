"""The `secrets:` section of config.yaml: what references in pipeline.yaml may read on this host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.common.config.expansion import Reference
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Section, Texts
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.names import resolved

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLES = Texts(
    name="variables",
    doc="names of environment variables, for `${NAME}`",
    pattern=f"^{_VARIABLE.pattern}$",
)
_FILES = Texts(
    name="files",
    doc="files, or folders with all files in them, for `${file:PATH}`; relative to the folder of "
    "config.yaml",
)
SECRETS = Section(
    name="secrets",
    doc="what references in pipeline.yaml may read on this host, whatever pipeline.yaml says",
    keys=(_VARIABLES, _FILES),
)
"""The section of config.yaml."""


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """The variables, by name, and the files, by absolute path, that references may read.

    The path of a folder allows all files below it. A relative path in a reference is relative to
    `folder`, that of config.yaml, which is absolute if the file was loaded. Symbolic links are
    resolved on both sides before a file is compared with `files`: a link out of an allowed folder
    is refused.
    """

    variables: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    folder: Path = Path()

    def problem(self, reference: Reference) -> str | None:
        """Return why a reference may not be read, as a sentence; None if it may be."""
        if reference.file and self.allowed_file(reference.file) is None:
            return (
                f"config.yaml does not allow the file {reference.file}: list it, or its folder, "
                "under secrets: {files: […]}"
            )
        if reference.name and reference.name not in self.variables:
            return (
                f"config.yaml does not allow the variable {reference.name}: list it under "
                "secrets: {variables: […]}"
            )
        return None

    def allowed_file(self, path: str) -> Path | None:
        """Return the file of a reference, with links resolved, or `None` if it is not allowed."""
        try:
            found = resolved(self.folder / path)
            listed = [each.resolve() for each in self.files]
        except (OSError, ValueError, RuntimeError):
            return None
        return found if any(each in (found, *found.parents) for each in listed) else None


def read_secret_settings(fields: Fields, folder: Path, problems: Problems) -> SecretSettings:
    """Return the settings of a config.yaml in `folder`; each mistake is added to `problems`."""
    secrets = fields.submap(SECRETS)
    variables = secrets.texts(_VARIABLES)
    for name in variables:
        if _VARIABLE.fullmatch(name) is None:
            problems.add(
                secrets.at(_VARIABLES.name),
                f'variables: "{name}" is not the name of an environment variable',
            )
    files = []
    for text in secrets.texts(_FILES):
        try:
            files.append(folder.absolute() / Path(text).expanduser())
        except (RuntimeError, ValueError, OSError) as error:
            problems.add(secrets.at(_FILES.name), f"files: {text!r} is not a path: {error}")
    return SecretSettings(variables, tuple(files), folder.absolute())
