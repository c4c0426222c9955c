"""Fetching Kafka's jars, with a stand-in for the Java that runs Ivy."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from admin.broker.jars import KAFKA_VERSION, JarSet, fetch_jars, kafka_jars
from common.errors import UnavailableError
from common.java import Java

_NAME = f"kafka_2.13-{KAFKA_VERSION}.jar"

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


def _entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_the_jars_are_fetched_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')
    cache = tmp_path / "cache"

    jars = kafka_jars(ivy.java, cache)
    again = kafka_jars(ivy.java, cache)

    assert jars == again == cache / f"kafka-{KAFKA_VERSION}"
    assert [path.name for path in jars.iterdir()] == [_NAME]
    assert len(ivy.calls) == 1
    assert capsys.readouterr().err.count(f"fetching the Kafka {KAFKA_VERSION} jars") == 1


def test_ivy_comes_from_pyspark_and_keeps_to_the_cache_folder(tmp_path: Path) -> None:
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')
    cache = tmp_path / "cache"

    kafka_jars(ivy.java, cache)

    (call,) = ivy.calls
    assert "/pyspark/jars/ivy-" in call
    assert f"-cache {cache}/kafka-{KAFKA_VERSION}.ivy " in call
    assert f"-retrieve {cache}/kafka-{KAFKA_VERSION}.part-" in call
    assert call.endswith("/[artifact]-[revision](-[classifier]).[ext] -confs default")


def test_a_failed_download_shows_ivys_last_words_and_leaves_no_jars(tmp_path: Path) -> None:
    ivy = Ivy(
        tmp_path,
        f'touch "$target/{_NAME}"\n'
        "seq -f 'old line %g' 50\n"
        "echo '....... (192kB)'; echo '-----------'; echo 'Server access error: no route to host'\n"
        "exit 1",
    )
    cache = tmp_path / "cache"

    with pytest.raises(UnavailableError) as error:
        kafka_jars(ivy.java, cache)

    assert "Server access error: no route to host" in str(error.value)
    assert "-----" not in str(error.value)
    assert "old line 3\n" not in str(error.value)
    assert "-Dhttps.proxyHost" in str(error.value)
    assert _entries(cache) == []


def test_ivy_without_kafka_is_a_failure_too(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="could not be fetched"):
        kafka_jars(Ivy(tmp_path, "exit 0").java, tmp_path / "cache")


def test_what_a_killed_download_left_never_counts_and_is_removed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    leftover = cache / f"kafka-{KAFKA_VERSION}.part-killed"
    leftover.mkdir(parents=True)
    (leftover / _NAME).touch()
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')

    kafka_jars(ivy.java, cache)

    assert len(ivy.calls) == 1
    assert _entries(cache) == [f"kafka-{KAFKA_VERSION}"]


def test_two_at_once_fetch_once(tmp_path: Path) -> None:
    # The first is still at it when the second comes: both have started before either goes on.
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ivy = Ivy(tmp_path, f'cat "{fifo}"; touch "$target/{_NAME}"')
    cache = tmp_path / "cache"

    with ThreadPoolExecutor(2) as pool:
        fetches = [pool.submit(kafka_jars, ivy.java, cache) for _ in range(2)]
        fifo.write_text("go on\n")
        assert {fetch.result() for fetch in fetches} == {cache / f"kafka-{KAFKA_VERSION}"}

    assert len(ivy.calls) == 1


def test_two_sets_of_jars_share_neither_folder_nor_ivy_cache(tmp_path: Path) -> None:
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}" "$target/other-1.jar"')
    cache = tmp_path / "cache"
    ivy_file = tmp_path / "other.xml"

    kafka_jars(ivy.java, cache)
    other = fetch_jars(JarSet("Other 1", "other-1", ivy_file, "other-1.jar"), ivy.java, cache)

    assert other == cache / "other-1"
    _, call = ivy.calls
    assert f"-cache {cache}/other-1.ivy -ivy {ivy_file} " in call
    assert _entries(cache) == [f"kafka-{KAFKA_VERSION}", "other-1"]


def test_a_set_without_its_main_jar_is_a_failure(tmp_path: Path) -> None:
    ivy = Ivy(tmp_path, 'touch "$target/another-1.jar"')
    wanted = JarSet("Other 1", "other-1", tmp_path / "other.xml", "other-1.jar")

    with pytest.raises(UnavailableError, match="The Other 1 jars could not be fetched"):
        fetch_jars(wanted, ivy.java, tmp_path / "cache")


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME"):
        kafka_jars(Ivy(tmp_path, "exit 0").java, tmp_path / "file" / "cache")


def test_a_cache_folder_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    # A name that is too long is an example of what a system may refuse, even to root.
    with pytest.raises(UnavailableError, match="XDG_CACHE_HOME"):
        kafka_jars(Ivy(tmp_path, "exit 0").java, tmp_path / ("x" * 300))


def test_the_default_is_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    ivy = Ivy(tmp_path, f'touch "$target/{_NAME}"')

    jars = kafka_jars(ivy.java)

    assert jars == tmp_path / "xdg" / "kafka-pipeline" / f"kafka-{KAFKA_VERSION}"
