"""Adds jars to a CycloneDX list of Python packages: `python -m scripts.sbom_jars FILE`.

They are those of the local broker, and those that pyspark brings.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_pipeline.admin.broker.jars import BROKER, digests_of, read_digests


def add_jars(bom: dict[str, Any], folder: str, digests: Mapping[str, str]) -> None:
    """Add a component for each jar, with its digest. The folder says where the jars come from."""
    bom["components"] += [
        {
            "type": "file",
            "bom-ref": f"{folder}/{name}",
            "name": f"{folder}/{name}",
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for name, digest in sorted(digests.items())
    ]


def spark_jars() -> Path:
    """Return the folder of Spark's jars in the installed pyspark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], "jars")


def main(file: Path) -> None:
    """Add the jars to a list in JSON."""
    bom = json.loads(file.read_text("utf-8"))
    add_jars(bom, BROKER.folder, read_digests(BROKER.digests))
    add_jars(bom, "pyspark/jars", digests_of(spark_jars()))
    file.write_text(json.dumps(bom, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
