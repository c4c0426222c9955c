"""Every name that users import is on a reference page."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from kafka_pipeline import agg, serdes, stores, windows
from kafka_pipeline.streams import api
from scripts.names_page import PUBLIC

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"


@pytest.mark.parametrize("module", PUBLIC.values(), ids=lambda module: module.__name__)
def test_each_name_is_on_a_reference_page(module: ModuleType) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    assert all(re.search(rf"`{name}\b", text) for name in module.__all__)
    # A name without a docstring has an empty cell.
    assert "|  |" not in (PAGES / "names.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [agg, serdes, stores, windows], ids=lambda each: each.__name__)
def test_what_pages_call_is_public(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    pages = (ROOT / "docs").rglob("*.md")
    called = re.compile(rf"(?<![\w.]){name}\.([a-z]\w*)\(")
    found = {each for page in pages for each in called.findall(page.read_text(encoding="utf-8"))}
    assert found
    assert found <= set(module.__all__)


def test_each_module_with_public_names_is_listed() -> None:
    files = [*(ROOT / "streams").rglob("*.py"), *(ROOT / "kafka_pipeline").glob("*.py")]
    found = {path for path in files if "\n__all__ = " in path.read_text(encoding="utf-8")}
    assert found == {Path(str(module.__file__)).resolve() for module in PUBLIC.values()}


def test_the_extractors_are_explained_where_sources_are() -> None:
    page = (PAGES / "processors.md").read_text(encoding="utf-8")
    extractors = [name for name in api.__all__ if name.endswith(("Extractor", "Timestamp"))]
    assert len(extractors) >= 6
    assert all(f"`{name}" in page for name in extractors)
