"""Fetching Kafka's jars, with a stand-in for the Java that runs Ivy."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.peers.flink_sql import JARS as FLINK
from benchmarks.peers.streams_java import JARS as KAFKA_STREAMS
from kafka_pipeline.admin.broker.jars import (
    BROKER,
    KAFKA_VERSION,
    JarSet,
    digests_of,
    fetch_jars,
    read_digests,
    write_digests,
)
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import Java

_NAME = "things-1.jar"
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""The digest of a file that `touch` makes."""

# Reads Ivy's command line as far as it matters here: where to put the jars.
_HEAD = """\
#!/bin/sh
echo "$*" >> "{calls}"
while [ "$1" != -retrieve ]; do shift; done
target=$(dirname "$2")
"""


class Ivy:
    """A program in place of `java -jar ivy.jar` that records its calls."""

    def __init__(self, folder: Path, script: str) -> None:
        self._calls = folder / "calls"
        executable = folder / "java"
        executable.write_text(_HEAD.format(calls=self._calls) + script)
        executable.chmod(0o755)
        self.java = Java(executable, home=folder, version=17)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


def _jar_set(folder: Path, name: str = "things", **digests: str) -> JarSet:
    """Return a set of one jar, or of those that are given."""
    listed = {f"{jar}-1.jar": digest for jar, digest in (digests or {name: _EMPTY}).items()}
    file = folder / f"{name}.sha256"
    write_digests(file, listed, "a test's")
    return JarSet(f"{name} 1", f"{name}-1", folder / f"{name}.xml", f"{name}-1.jar", file)


@pytest.fixture
def things(tmp_path: Path) -> JarSet:
    return _jar_set(tmp_path)


def _entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_the_jars_are_fetched_once(
    things: JarSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')
    cache = tmp_path / "cache"

    jars = fetch_jars(things, ivy.java, cache)
    again = fetch_jars(things, ivy.java, cache)

    assert jars == again == cache / "things-1"
    assert [path.name for path in jars.iterdir()] == [_NAME]
    assert len(ivy.calls) == 1
    assert capsys.readouterr().err.count("fetching the things 1 jars") == 1


def test_ivy_comes_from_pyspark_and_keeps_to_the_cache_folder(
    things: JarSet, tmp_path: Path
) -> None:
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')
    cache = tmp_path / "cache"

    fetch_jars(things, ivy.java, cache)

    (call,) = ivy.calls
    assert "/pyspark/jars/ivy-" in call
    assert f"-cache {cache}/things-1.ivy " in call
    assert f"-retrieve {cache}/things-1.part-" in call
    assert call.endswith("/[artifact]-[revision](-[classifier]).[ext] -confs default")


def test_a_failed_download_shows_ivys_last_words_and_leaves_no_jars(
    things: JarSet, tmp_path: Path
) -> None:
    ivy = Ivy(
        tmp_path,
        f'touch "$target/{_NAME}"\n'
        "seq -f 'old line %g' 50\n"
        "echo '....... (192kB)'; echo '-----------'; echo 'Server access error: no route to host'\n"
        "exit 1",
    )
    cache = tmp_path / "cache"

    with pytest.raises(UnavailableError) as error:
        fetch_jars(things, ivy.java, cache)

    assert "Server access error: no route to host" in str(error.value)
    assert "-----" not in str(error.value)
    assert "old line 3\n" not in str(error.value)
    assert "-Dhttps.proxyHost" in str(error.value)
    assert _entries(cache) == []


def test_ivy_without_kafka_is_a_failure_too(things: JarSet, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="could not be fetched"):
        fetch_jars(things, Ivy(tmp_path, "exit 0").java, tmp_path / "cache")


def test_what_a_killed_download_left_never_counts_and_is_removed(
    things: JarSet, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    leftover = cache / "things-1.part-killed"
    leftover.mkdir(parents=True)
    (leftover / _NAME).touch()
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')

    fetch_jars(things, ivy.java, cache)

    assert len(ivy.calls) == 1
    assert _entries(cache) == ["things-1"]


def test_two_at_once_fetch_once(things: JarSet, tmp_path: Path) -> None:
    # The first is still at it when the second comes: both have started before either goes on.
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ivy = Ivy(tmp_path, f'cat "{fifo}"; touch "$target/{_NAME}"')
    cache = tmp_path / "cache"

    with ThreadPoolExecutor(2) as pool:
        fetches = [pool.submit(fetch_jars, things, ivy.java, cache) for _ in range(2)]
        fifo.write_text("go on\n")
        assert {fetch.result() for fetch in fetches} == {cache / "things-1"}

    assert len(ivy.calls) == 1


def test_two_sets_of_jars_share_neither_folder_nor_ivy_cache(
    things: JarSet, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    other = _jar_set(tmp_path, "other")

    fetch_jars(things, Ivy(tmp_path, f'touch "$target/{_NAME}"').java, cache)
    ivy = Ivy(tmp_path, 'touch "$target/other-1.jar"')
    assert fetch_jars(other, ivy.java, cache) == cache / "other-1"

    _, call = ivy.calls
    assert f"-cache {cache}/other-1.ivy -ivy {other.ivy_file} " in call
    assert _entries(cache) == ["other-1", "things-1"]


def test_a_set_without_its_main_jar_is_a_failure(things: JarSet, tmp_path: Path) -> None:
    ivy = Ivy(tmp_path, 'touch "$target/another-1.jar"')

    with pytest.raises(UnavailableError, match="The things 1 jars could not be fetched"):
        fetch_jars(things, ivy.java, tmp_path / "cache")


def test_jars_that_are_not_those_of_the_list_are_named_and_deleted(tmp_path: Path) -> None:
    ivy = Ivy(tmp_path, f'printf abc > "$target/{_NAME}"; touch "$target/more-1.jar"')
    cache = tmp_path / "cache"

    with pytest.raises(UnavailableError) as error:
        fetch_jars(_jar_set(tmp_path, things=_EMPTY, absent=_EMPTY), ivy.java, cache)

    told = str(error.value)
    assert f"{_NAME} has the digest ba7816bf8f01" in told
    assert f"instead of {_EMPTY}, more-1.jar is not on the list, absent-1.jar is missing" in told
    assert _entries(cache) == []


def test_a_jar_that_was_changed_since_is_found_at_the_next_start(
    things: JarSet, tmp_path: Path
) -> None:
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')
    jars = fetch_jars(things, ivy.java, tmp_path / "cache")
    (jars / _NAME).write_text("forged")

    with pytest.raises(UnavailableError, match=f"{_NAME} has the digest .* delete that folder"):
        fetch_jars(things, ivy.java, tmp_path / "cache")
    assert (jars / _NAME).read_text() == "forged"


@pytest.mark.parametrize(
    "jar_set", [BROKER, KAFKA_STREAMS, FLINK], ids=lambda jar_set: jar_set.folder
)
def test_list_of_digests_has_the_versions_of_ivy_xml(jar_set: JarSet) -> None:
    listed = read_digests(jar_set.digests)
    asked = re.findall(r'name="(\S+)" rev="(\S+)"', jar_set.ivy_file.read_text())
    assert {f"{name}-{revision}.jar" for name, revision in asked} <= listed.keys()
    assert jar_set.main_jar in listed
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in listed.values())


def test_digests_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "empty.jar").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "abc.jar").write_text("abc")
    assert digests_of(tmp_path) == {
        "empty.jar": _EMPTY,
        "more/abc.jar": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }


def test_a_cache_folder_that_cannot_be_made_is_named(things: JarSet, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME"):
        fetch_jars(things, Ivy(tmp_path, "exit 0").java, tmp_path / "file" / "cache")


def test_a_cache_folder_that_cannot_be_looked_at_is_named(things: JarSet, tmp_path: Path) -> None:
    # A name that is too long is an example of what a system may refuse, even to root.
    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME"):
        fetch_jars(things, Ivy(tmp_path, "exit 0").java, tmp_path / ("x" * 300))


def test_the_default_is_the_users_cache_folder(
    things: JarSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')

    jars = fetch_jars(things, ivy.java)

    assert jars == tmp_path / "xdg" / "kafka-pipeline" / "things-1"


def test_broker_runs_on_the_jars_of_its_own_list(tmp_path: Path) -> None:
    ivy = Ivy(tmp_path, f'touch "$target/kafka_2.13-{KAFKA_VERSION}.jar"')

    with pytest.raises(UnavailableError, match=rf"kafka_2.13-{KAFKA_VERSION}.jar has the digest"):
        fetch_jars(BROKER, ivy.java, tmp_path / "cache")
