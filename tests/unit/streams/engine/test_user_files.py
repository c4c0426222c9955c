"""The source files of users' modules, and their fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.streams.engine.user_files import code_fingerprints, source_files


def write(folder: Path, name: str, text: str = "x = 1\n") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_module_is_its_file_and_a_package_all_that_is_below(tmp_path: Path) -> None:
    alone = write(tmp_path, "alone_zz.py")
    files = {
        f"pack_zz/{name}": write(tmp_path, f"pack_zz/{name}")
        for name in ("__init__.py", "a.py", "deep/__init__.py", "deep/b.py")
    }
    write(tmp_path, "pack_zz/__pycache__/c.py")
    write(tmp_path, "pack_zz/data.csv")
    write(tmp_path, "other_zz.py")
    found = source_files(["alone_zz", "pack_zz"], [tmp_path])
    assert found == {"alone_zz.py": alone, **files}


def test_only_a_module_of_a_package_may_be_listed(tmp_path: Path) -> None:
    # Importing the package would fail.
    write(tmp_path, "pack_zz/__init__.py", "raise ValueError\n")
    listed = write(tmp_path, "pack_zz/a.py")
    write(tmp_path, "pack_zz/b.py")
    assert source_files(["pack_zz.a"], [tmp_path]) == {"pack_zz/a.py": listed}


def test_packages_need_no_init_file(tmp_path: Path) -> None:
    file = write(tmp_path, "space_zz/inner/c.py")
    found = {"space_zz/inner/c.py": file}
    for module in ("space_zz", "space_zz.inner", "space_zz.inner.c"):
        assert source_files([module], [tmp_path]) == found


@pytest.mark.parametrize("module", ["missing_zz", "pack_zz.missing", "alone_zz.part", "sys"])
def test_what_is_not_there_has_no_files(tmp_path: Path, module: str) -> None:
    write(tmp_path, "pack_zz/__init__.py")
    write(tmp_path, "alone_zz.py")
    assert source_files([module], [tmp_path]) == {}


def test_a_file_that_was_made_a_moment_ago_is_found(tmp_path: Path) -> None:
    for name in ("one_zz", "two_zz", "three_zz"):
        write(tmp_path, f"{name}.py")
        assert source_files([name], [tmp_path])


def test_the_same_code_in_another_folder_has_the_same_fingerprint(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder, "pack_zz/__init__.py")
        write(tmp_path / folder, "pack_zz/part.py", "y = 2\n")
    one, two = (code_fingerprints(["pack_zz"], [tmp_path / name]) for name in ("a", "b"))
    assert one == two
    assert len(one["pack_zz"]) == 12


def test_each_change_changes_the_fingerprint_of_its_module(tmp_path: Path) -> None:
    def fingerprints() -> tuple[str, str]:
        found = code_fingerprints(["pack_zz", "other_zz"], [tmp_path])
        return found["pack_zz"], found["other_zz"]

    write(tmp_path, "other_zz.py")
    write(tmp_path, "pack_zz/__init__.py")
    seen = {fingerprints()}
    write(tmp_path, "pack_zz/part.py", "y = 2\n")
    seen.add(fingerprints())
    write(tmp_path, "pack_zz/part.py", "y = 3\n")
    seen.add(fingerprints())
    (tmp_path / "pack_zz/part.py").rename(tmp_path / "pack_zz/renamed.py")
    seen.add(fingerprints())
    assert len({pack for pack, _ in seen}) == 4
    assert len({other for _, other in seen}) == 1


def test_what_has_no_source_has_no_fingerprint() -> None:
    assert code_fingerprints(["sys", "missing_zz"], []) == {}
