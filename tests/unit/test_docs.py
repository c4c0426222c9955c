"""The documentation: its links, its commands, its configuration and its code are right."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs import comparison
from tests.docs.commands import ROOT, WrongCommandError, check_command
from tests.docs.pages import blocks, broken_links, headings, linked_pages, named_files
from tests.docs.story import Story
from tests.folders import FOLDERS

README = ROOT / "README.md"
INDEX = ROOT / "docs" / "README.md"
COMPARISON = ROOT / "docs" / "explanation" / "kafka_streams.md"
PAGES = [
    *(README, ROOT / "CHANGELOG.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
WITH_SPARK = {
    "docs/how-to/read_change_data.md": [pytest.mark.integration],
    "docs/how-to/recipes.md": [pytest.mark.integration],
    "docs/reference/spark_sql.md": [pytest.mark.integration, pytest.mark.long],
    "docs/reference/sql_groups.md": [pytest.mark.integration, pytest.mark.long],
    "docs/reference/sql_joins.md": [pytest.mark.integration, pytest.mark.long],
    "docs/tutorials/first_sql.md": [pytest.mark.integration],
}
"""Pages whose examples run queries; those that are long have a great many."""

MOST_README_LINES = 150
MOST_EXCUSES = 20

KAFKA_TEST_CLASS = re.compile(r"\b[A-Z]\w+Test\b")
KAFKA_TEST_METHOD = re.compile(r"\b(?:should|test|doJoin|joinShould)[A-Z]\w*|\b\w+WindowMix\w+")
DSL_HEADING = "## Streams, tables, windows and joins"
DSL_TESTS = ROOT / "tests" / "unit" / "streams" / "dsl"
LEAST_CASES_OF_THE_DSL = 150
REFERENCE = re.compile(r'docs/(?P<page>[\w/-]+\.md)(?:, "(?P<heading>[^"]+)")?')
OTHER_FILES = ("*.yaml", "*.sh", "deploy/*", "scripts/*", "admin/templates/**/*", "tests/**/*.py")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def run_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology_test_driver: Callable[..., Any]
) -> Callable[[Path], None]:
    folder = tmp_path / "reader"
    folder.mkdir()
    return lambda page: Story(page, folder, monkeypatch, topology_test_driver).run()


def test_readme_is_short_and_names_the_commands() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_README_LINES
    assert "./quickstart.sh" in text
    assert "./test.sh" in text


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_of_the_project_that_pages_name_exist(page: Path) -> None:
    assert [file for file in named_files(page) if not any(ROOT.glob(file))] == []


def test_the_index_has_every_page() -> None:
    assert {page for page in PAGES[2:] if page != INDEX} <= linked_pages(INDEX)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=WITH_SPARK.get(name(page), ())) for page in PAGES],
    ids=[*map(name, PAGES)],
)
def test_examples_work(page: Path, run_page: Callable[[Path], None]) -> None:
    run_page(page)


def test_the_comparison_has_each_test_of_kafka_streams_that_tests_of_the_dsl_name() -> None:
    files = DSL_TESTS.rglob("*.*")
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in {".py", ".txt"}]
    named = {each for text in texts for each in KAFKA_TEST_CLASS.findall(text)}
    named |= {each for text in texts for each in KAFKA_TEST_METHOD.findall(text)}
    assert {"KStreamFilterTest", "testFilterNot"} < named
    page = COMPARISON.read_text(encoding="utf-8")
    assert [each for each in sorted(named) if not re.search(rf"\b{each}\b", page)] == []


def test_tests_of_the_dsl_that_the_comparison_names_exist() -> None:
    found = comparison.rows(COMPARISON, DSL_HEADING)
    differences = [row for row in found if "test here" in row.cells]
    cases = [row for row in found if "cases" in row.cells]
    named = {test for row in differences for test in row.named_tests("test here")}
    named |= {test for row in cases for test in row.named_tests("here")}
    assert ("test_tables.py", "CASES") in named
    names = {file: comparison.names_in(DSL_TESTS / file) for file, _ in named}
    assert [f"{file}: {name}" for file, name in sorted(named) if name not in names[file]] == []


def test_files_of_the_dsl_name_the_methods_of_kafka_streams_that_the_comparison_says() -> None:
    shared = "".join(path.read_text(encoding="utf-8") for path in DSL_TESTS.glob("cases/*.txt"))
    missing = []
    for row in comparison.rows(COMPARISON, DSL_HEADING):
        if "cases" in row.cells:
            files = {file for file, _ in row.named_tests("here")}
            text = shared + "".join((DSL_TESTS / file).read_text("utf-8") for file in files)
            missing += [f"line {row.line}: {each}" for each in row.methods() if each not in text]
    assert missing == []


def test_the_comparison_counts_the_cases_of_the_dsl() -> None:
    found = comparison.rows(COMPARISON, DSL_HEADING)
    count = sum(int(row.cells["cases"]) for row in found if "cases" in row.cells)
    assert count >= LEAST_CASES_OF_THE_DSL
    assert f"tables below hold {count} cases" in COMPARISON.read_text(encoding="utf-8")


def test_few_examples_are_excused() -> None:
    excuses = [f"{block}: {block.excuse}" for page in PAGES for block in blocks(page)]
    assert len([excuse for excuse in excuses if not excuse.endswith(": ")]) <= MOST_EXCUSES


def references(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the pages that a file names, each with a heading or "", as in an error message."""
    text = path.read_text(encoding="utf-8")
    yield from ((found["page"], "") for found in REFERENCE.finditer(text))
    if path.suffix == ".py" and ".md" in text:
        # Only here are strings that span several lines in one piece.
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in REFERENCE.finditer(node.value):
                    yield found["page"], found["heading"] or ""


def test_code_names_pages_and_headings_that_exist() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = (path for pattern in OTHER_FILES for path in ROOT.glob(pattern))
    files += filter(Path.is_file, found)  # some tests leave a __pycache__
    files.remove(Path(__file__))
    wrong = []
    for path in files:
        for page, heading in references(path):
            target = ROOT / "docs" / page
            if not target.is_file() or heading not in {"", *headings(target)}:
                wrong.append(f"{name(path)}: docs/{page} {heading}")
    assert wrong == []


# The checks themselves: each must find the mistake that it is for.


@pytest.mark.parametrize(
    "text",
    [
        "[gone](gone.md)",
        "[no such heading](page.md#gone)",
        "# Here\n\n[in the page itself](#there)",
    ],
)
def test_broken_links_are_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert len(broken_links(page)) == 1


CASES_OF_A_DSL = """## A

| operator | Kafka Streams | cases | here |
| --- | --- | --- | --- |
| `map` | `MapTest`: `testMap` | 2 | `test_a.py`: `CASES`, `test_map`; `test_b.py`: `test_b` |

### Part of A

| matter | here |
| --- | --- |
| one | two |

## B

| operator | here |
| --- | --- |
| `other` | `test_c.py`: `test_c` |
"""


def test_rows_of_the_comparison_are_read_below_their_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(CASES_OF_A_DSL, encoding="utf-8")
    first, second = comparison.rows(page, "## A")
    assert (first.line, first.cells["cases"], first.methods()) == (5, "2", ["testMap"])
    assert [*first.named_tests("here")] == [
        ("test_a.py", "CASES"),
        ("test_a.py", "test_map"),
        ("test_b.py", "test_b"),
    ]
    assert second.cells == {"matter": "one", "here": "two"}


def test_a_test_without_a_file_is_found_in_the_comparison() -> None:
    row = comparison.Row(7, {"here": "`test_map`"})
    with pytest.raises(ValueError, match="line 7: no file is named before test_map"):
        [*row.named_tests("here")]


def test_links_in_code_are_no_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `name`, and more\n\n`[a](b)` [up](#a-name-and-more)\n", encoding="utf-8")
    assert broken_links(page) == []


@pytest.mark.parametrize(
    "command",
    [
        "pipeline validat config.yaml pipeline.yaml",
        "pipeline status --jsn config.yaml",
        "jobmanager --no-such-option config.yaml",
        "taskmanager 0 two config.yaml",
        "python -m benchmarks.compare --no-such-option",
        "python -m benchmarks.nothing",
        "pytest tests/nowhere",
        "pytest --no-such-option",
        "./quickstart.sh --keeep",
        "./examples/flights/run.sh --days many",
        "./nothing.sh",
        "unheard-of",
    ],
)
def test_wrong_commands_are_found(command: str) -> None:
    with pytest.raises(WrongCommandError):
        check_command(command.split())


@pytest.mark.parametrize(
    "block",
    [
        "```yaml\ncommit_interval: 5\n```",
        "```yaml\n- {id: A, type: forward, to: [B]}\n```",
        "```yaml\n- {id: A, type: 'gone:A', to: [sink]}\n```",
        "```python\ndef broken(:\n```",
        "```python\nfrom kafka_pipeline import Gone\n```",
        "```python\ndef test_a():\n    assert 1 == 2\n```",
        "```console\n$ pipeline init\nwrote nothing\n```",
        "```sh\npipeline validate config.yaml\n```",
    ],
)
def test_wrong_examples_are_found(
    block: str, tmp_path: Path, run_page: Callable[[Path], None]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(block, encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:2"):
        run_page(page)
