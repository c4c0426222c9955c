"""Which tests run with `--all`, and which ones always do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.seeds import parametrize

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests import tiers

def pytest_addoption(parser):
    tiers.add_option(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs with --all only")

def pytest_collection_modifyitems(config, items):
    tiers.leave_out_long(config, items)
"""
TESTS = """
import pytest
from _pytest.mark import ParameterSet
from tests.tiers import long_but_the_first

def test_short(): pass

@pytest.mark.long
def test_long(): pass

@pytest.mark.parametrize("one", long_but_the_first("abc"))
def test_of_one(one): pass

@pytest.mark.parametrize(("one", "two"), long_but_the_first([(1, 2), (3, 4), (5, 6)], 2))
def test_of_two(one, two): pass
"""
SHORT = ["test_of_one[a]", "test_of_two[1-2]", "test_of_two[3-4]", "test_short"]
LONG = ["test_long", "test_of_one[b]", "test_of_one[c]", "test_of_two[5-6]"]


@pytest.mark.parametrize(("options", "wanted"), [([], SHORT), (["--all"], SHORT + LONG)])
def test_long_tests_run_with_all_only(
    tmp_path: Path, options: list[str], wanted: list[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_a.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rp", *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = done.stdout.splitlines()
    ran = [line.partition("::")[2] for line in lines if line.startswith("PASSED")]
    assert sorted(ran) == sorted(wanted), done.stdout


class Generator:
    """A test that takes seeds, as `parametrize` sees it."""

    fixturenames = ("seeds",)

    def __init__(self, **options: int) -> None:
        self.config = self
        self._options = options
        self.short: list[range] = []
        self.long: list[range] = []

    def getoption(self, name: str) -> int | None:
        return self._options.get(name.removeprefix("--"))

    def parametrize(self, name: str, cases: list[ParameterSet], *, ids: list[str]) -> None:
        assert name == "seeds"
        assert len(ids) == len(cases)
        for case in cases:
            (chunk,) = case.values
            assert isinstance(chunk, range)
            (self.long if case.marks else self.short).append(chunk)


def generated(**options: int) -> Generator:
    made = Generator(**options)
    parametrize(made, short=20, count=50, chunk=10)  # type: ignore[arg-type]
    return made


def numbers(chunks: list[range]) -> Iterator[int]:
    return (number for chunk in chunks for number in chunk)


def test_the_first_seeds_are_short_and_the_others_long() -> None:
    made = generated()
    assert list(numbers(made.short)) == list(range(20))
    assert list(numbers(made.long)) == list(range(20, 50))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({"seed": 47}, [47]), ({"seeds": 35}, list(range(35))), ({"seeds": 100}, list(range(100)))],
)
def test_seeds_that_are_asked_for_are_not_long(options: dict[str, int], wanted: list[int]) -> None:
    made = generated(**options)
    assert list(numbers(made.short)) == wanted
    assert made.long == []
