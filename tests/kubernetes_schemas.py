"""What the API servers of several versions of Kubernetes accept, from the schemas of a package.

Only its file is fetched: unpacked, it is 17,000 files, of which a version takes a handful.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import Path as PathInZip

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012, Schema

LOCK = Path(__file__).parents[1] / "locks" / "kubernetes.lock"
_STRICT = "-local-strict"
_DEFINITIONS = "_definitions.json"


class Schemas:
    """The schemas of kubernetes-validate, which know no field but those of the version."""

    def __init__(self, folder: Path) -> None:
        """Fetch the package of `LOCK` into a folder: 22 MB, which pip keeps in its cache."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
        command += ["--no-deps", "--require-hashes", "-r", str(LOCK), "-d", str(folder)]
        subprocess.run(command, check=True)
        (wheel,) = folder.glob("kubernetes_validate-*.whl")
        self._folder = PathInZip(wheel, "kubernetes_validate/kubernetes-json-schema/")

    def versions(self) -> list[str]:
        """Return the versions of Kubernetes, such as `1.37.0`, the oldest first."""
        names = [folder.name for folder in self._folder.iterdir()]
        found = [name[1:].removesuffix(_STRICT) for name in names if name.endswith(_STRICT)]
        return sorted(found, key=lambda version: [int(part) for part in version.split(".")])

    def complaints(self, document: Any, version: str) -> list[str]:
        """Return what is wrong with a document: each time, the place and the reason."""
        # `policy/v1` is in a file as `policy-v1`, and `networking.k8s.io/v1` as `networking-v1`.
        api = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", document["apiVersion"])
        folder = self._folder / f"v{version}{_STRICT}"
        schema = json.loads((folder / f"{document['kind'].lower()}-{api}.json").read_text())
        shared: Resource[Schema] = Resource.from_contents(
            json.loads((folder / _DEFINITIONS).read_text()), DRAFT202012
        )
        validator = Draft202012Validator(schema, registry=shared @ Registry())
        return sorted(
            f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
            for error in validator.iter_errors(document)
        )
