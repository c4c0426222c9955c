"""The code of the user's modules that each TaskManager runs, by the fingerprints in its reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import CodeSpec, DataFrameSpec, TopologySpec
from kafka_pipeline.common.suggest import is_or_are

CodeVersions = Mapping[str, Mapping[str, tuple[int, ...]]]
"""The ids of the TaskManagers that run a version of a module, by module and by fingerprint."""


def differing(code: Mapping[int, Mapping[str, str]]) -> CodeVersions:
    """Return the modules that have several versions; `code` is by TaskManager.

    A TaskManager that has not reported a module does not count for it.
    """
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for tm_id in sorted(code):
        for module, fingerprint in code[tm_id].items():
            versions = found.setdefault(module, {})
            versions[fingerprint] = (*versions.get(fingerprint, ()), tm_id)
    return {module: versions for module, versions in found.items() if len(versions) > 1}


def versions_line(module: str, versions: Mapping[str, tuple[int, ...]]) -> str:
    """Return a sentence about a module with several versions."""
    owners = "; ".join(
        f"{', '.join(map(str, tm_ids))}: {fingerprint}" for fingerprint, tm_ids in versions.items()
    )
    return f'the TaskManagers run different code of the module "{module}" ({owners})'


@dataclass(frozen=True, slots=True)
class CodeChange:
    """A module whose code on this host differs from that of TaskManagers that are up.

    The code of `processors` is in the module; others may import it, too.
    """

    module: str
    processors: tuple[str, ...]
    task_managers: tuple[int, ...]
    has_topology: bool = False
    """Whether one of them is a topology, whose stores and topics the version has from the code."""

    def __str__(self) -> str:
        """Return a line for a terminal."""
        of = f", which has the code of {', '.join(self.processors)}" if self.processors else ""
        noun = "TaskManager" if len(self.task_managers) == 1 else "TaskManagers"
        runs = f"{noun} {', '.join(map(str, self.task_managers))}"
        line = (
            f"{self.module}{of}: takes effect once {runs} {is_or_are(self.task_managers)} restarted"
        )
        if not self.has_topology:
            return line
        return f"{line}. It has a topology, so restart before you apply"

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {
            "module": self.module,
            "processors": list(self.processors),
            "task_managers": list(self.task_managers),
        }


def code_changes(
    here: Mapping[str, str], reported: Mapping[int, Mapping[str, str]], pipeline: Pipeline
) -> list[CodeChange]:
    """Return the modules whose code differs.

    `here` has this host's fingerprints by module, and `reported` those of each TaskManager, by id.
    A TaskManager that has not reported a module does not count for it.
    """
    found = []
    for module, fingerprint in here.items():
        versions = {tm_id: code[module] for tm_id, code in reported.items() if module in code}
        others = tuple(tm_id for tm_id, version in versions.items() if version != fingerprint)
        if others:
            of = [each for each in pipeline.processors if _is_in(module, each.spec)]
            has_topology = any(isinstance(each.spec, TopologySpec) for each in of)
            found.append(CodeChange(module, tuple(e.id for e in of), others, has_topology))
    return found


def _is_in(module: str, spec: object) -> bool:
    if not isinstance(spec, CodeSpec | DataFrameSpec):
        return False
    own = spec.code.partition(":")[0]
    return own == module or own.startswith(f"{module}.")
