"""Lists the names that users import, with what their docstrings say first."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from kafka_pipeline import agg, schema_registry, serdes, stores, testing, windows
from kafka_pipeline.streams import api

PUBLIC: Mapping[str, ModuleType] = {
    "from kafka_pipeline import …": api,
    "from kafka_pipeline import agg": agg,
    "from kafka_pipeline import serdes": serdes,
    "from kafka_pipeline import stores": stores,
    "from kafka_pipeline import windows": windows,
    "from kafka_pipeline.testing import …": testing,
    "from kafka_pipeline import schema_registry": schema_registry,
}
"""The modules with public names, by how they are imported."""


def name_sections() -> list[str]:
    """Return a heading and a table for each module, as paragraphs."""
    sections = []
    for imported, module in PUBLIC.items():
        rows = [f"| `{name}` | {_meaning(vars(module)[name])} |" for name in sorted(module.__all__)]
        sections += [
            f"## `{imported}`",
            "\n".join(["| name | what it is |", "| --- | --- |", *rows]),
        ]
    return sections


def _meaning(found: Any) -> str:
    if isinstance(found, serdes.Serde):
        return f"the serde `{found.name}`"
    if isinstance(found, int):
        return f"{found}, a result of `put` of a versioned store"
    text = (inspect.getdoc(found) or "").split("\n\n", maxsplit=1)[0]
    return " ".join(text.split()).replace("|", "\\|").removesuffix(":")
