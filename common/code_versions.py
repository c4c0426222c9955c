"""Which TaskManagers run which code of the user's modules, by the fingerprints in their reports."""

from __future__ import annotations

from collections.abc import Mapping

CodeVersions = Mapping[str, Mapping[str, tuple[int, ...]]]
"""The ids of the TaskManagers that have a version of a module, by fingerprint, by module."""


def differing(code: Mapping[int, Mapping[str, str]]) -> CodeVersions:
    """Return the modules of which there are several versions; `code` is by TaskManager.

    A TaskManager that has reported nothing about a module plays no role for it.
    """
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for tm_id in sorted(code):
        for module, fingerprint in code[tm_id].items():
            versions = found.setdefault(module, {})
            versions[fingerprint] = (*versions.get(fingerprint, ()), tm_id)
    return {module: versions for module, versions in found.items() if len(versions) > 1}


def described(module: str, versions: Mapping[str, tuple[int, ...]]) -> str:
    """Return a sentence about a module of which there are several versions."""
    owners = "; ".join(
        f"{', '.join(map(str, tm_ids))}: {fingerprint}" for fingerprint, tm_ids in versions.items()
    )
    return f'the TaskManagers run different code of the module "{module}" ({owners})'
