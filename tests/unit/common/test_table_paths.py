"""Paths of tables, however they are written, lead only to where config.yaml allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.table_paths import PathError, location_of
from kafka_pipeline.common.config.table_settings import TableSettings
from tests.unit.common.config_texts import BASE

JOB = Path("/no/such/job")
DEFAULT = TableSettings(folder=JOB)


def problem(path: str, settings: TableSettings = DEFAULT) -> str:
    """Return why a table with a path is not read; "" if it is read."""
    try:
        return settings.path_problem(location_of(path, settings.folder)) or ""
    except PathError as error:
        return str(error)


@pytest.mark.parametrize(
    "path",
    [
        "rates.csv",
        "./a//b/rates.csv",
        "a/../rates.csv",
        ".",
        "*.csv",
        "year=*/{a,b}/part-[0-9][!a].csv",
        "{{a,b},c}.csv",
        "day/10:00.csv",
        "100%.csv",
        "a..b.csv",
        "a..*.csv",
        "/no/such/job/rates.csv",
        "file:/no/such/job/rates.csv",
        "file:///no/such/job/rates.csv",
        "FILE:/no/such/job/x/../rates.csv",
    ],
)
def test_what_is_in_the_folder_of_config_yaml_is_read_by_default(path: str) -> None:
    assert problem(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "../rates.csv",
        "..",
        "a/../../rates.csv",
        "../job2/rates.csv",
        "/etc/passwd",
        "//etc/passwd",
        "/no/such/job2",
        "/no/such",
        "/no/such/job/../x",
        "/no/such/*/rates.csv",
        "/proc/self/environ",
        "~/.ssh/id_rsa",
        "file:/etc/passwd",
        "file:////etc/passwd",
        "FILE:/etc/passwd",
        "hdfs:///no/such/job/rates.csv",
        "viewfs:///no/such/job",
        "s3a://bucket/rates",
        "http://127.0.0.1/rates.csv",
        "har:///no/such/job/x.har/a",
    ],
)
def test_anything_else_is_outside(path: str) -> None:
    assert "is outside of what config.yaml allows" in problem(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("{a,../../../etc}/passwd", "must be closed before the next slash"),
        ("{x/..,y}/../../etc/passwd", "must be closed before the next slash"),
        ("[a/..]/../passwd", "must be closed before the next slash"),
        ("{..,a}/passwd", 'has ".." among its choices'),
        ("{a,..}/passwd", 'has ".." among its choices'),
        ("*/../../etc/passwd", 'has ".." after a wildcard'),
        (r"\.\./\.\./etc/passwd", "a backslash"),
        ("a\n", "a control character"),
        ("a\0b", "a control character"),
        ("file://localhost/etc/passwd", "names a host"),
        ("file:etc/passwd", "has a colon before its first slash"),
        ("jar:file:/no/such/job/x.jar!/a", "has a colon before its first slash"),
        (":/etc/passwd", "has a colon before its first slash"),
        (" file:/etc/passwd", "has a colon before its first slash"),
        ("s3a://bucket/t/../secret", 'has ".." among its names'),
        ("s3a://bucket/t/%2e%2E/secret", 'has "%2e%2E" among its names'),
        ("s3a://bucket/t/%252e./secret", 'has "%252e." among its names'),
        ("s3a://bucket/t/a%2f..%2fsecret", "among its names"),
        ("s3a://{bucket,other}/t", "in the place of a bucket"),
        (".env", 'a name that begins with "."'),
        ("a/.git/config", 'a name that begins with "."'),
    ],
)
def test_what_hadoop_may_understand_in_another_way_is_refused(path: str, reason: str) -> None:
    assert reason in problem(path)


def test_what_is_listed_is_read_and_nothing_next_to_it() -> None:
    listed = ("/data/rates.csv", "lookups", "s3a://bucket/t", "/etc/.tables")
    settings = replace(DEFAULT, paths=listed)
    for path in (
        "/data/rates.csv",
        "lookups/a.csv",
        "lookups/{a,b}*/x",
        "s3a://bucket/t",
        "s3a://bucket//t/a/*.csv",
        "S3A://bucket/t/x",
        "/etc/.tables/a",
    ):
        assert problem(path, settings) == "", path
    for path in (
        "rates.csv",
        "/data/rates.csv2",
        "/data",
        "lookups2",
        "s3a://bucket/t2",
        "s3a://bucket/*",
        "s3a://bucket2/t",
        "s3n://bucket/t",
        "s3a://key@bucket/t",
        "s3a:///bucket/t",
    ):
        assert "is outside" in problem(path, settings), path
    assert "is outside" in problem(".", replace(DEFAULT, paths=()))


def test_links_are_followed_on_both_sides(tmp_path: Path) -> None:
    outside, job = tmp_path / "outside", tmp_path / "job"
    outside.mkdir()
    job.mkdir()
    (outside / "a.csv").touch()
    (job / "link.csv").symlink_to(outside / "a.csv")
    (job / "folder").symlink_to(outside)
    settings = TableSettings(folder=job)
    for path in ("link.csv", "folder", "folder/a.csv", "folder/*"):
        assert "is outside" in problem(path, settings), path
    assert location_of("folder/../a.csv", job).path == job / "a.csv", "as Hadoop understands it"
    assert problem("folder/a.csv", replace(settings, paths=("folder",))) == ""
    (tmp_path / "other").symlink_to(job)
    assert problem("../other/a.csv", settings) == ""
    (job / "circle").symlink_to(job / "circle")
    assert problem("circle/a.csv", settings) == ""


def test_a_volume_of_kubernetes_is_read(tmp_path: Path) -> None:
    """A file there is a link into a folder whose name begins with two dots."""
    (tmp_path / "..2026_01").mkdir()
    (tmp_path / "..2026_01" / "rates.csv").touch()
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "rates.csv").symlink_to("..data/rates.csv")
    assert problem("rates.csv", TableSettings(folder=tmp_path)) == ""


def test_files_of_the_configuration_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though they are in the folder whose files are read by default."""
    monkeypatch.chdir(tmp_path)
    for name in ("control.key", "console.token", "password", "listed"):
        (tmp_path / name).write_text("0123456789abcdef0123456789abcdef")
    (tmp_path / "config.yaml").write_text(
        BASE
        + "control_key_file: control.key\nconsole_token_file: console.token\n"
        + "secrets: {files: [listed]}\n"
        + 'kafka: {sasl.password: "${file:password}", ssl.key.location: client.pem}\n'
    )
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "control.key")
    settings = load_config(Path("config.yaml")).tables
    for path in (
        "config.yaml",
        "control.key",
        "console.token",
        "listed",
        "password",
        "client.pem",
        "state",
        "state/task/x.sst",
        "hard.csv",
        f"file:{tmp_path}/config.yaml",
    ):
        for paths in ((".",), (path,)):
            found = problem(path, replace(settings, paths=paths))
            assert "belongs to the configuration, the secrets or the state" in found, path
    assert problem("rates.csv", settings) == ""


def test_a_job_whose_state_is_around_its_configuration_has_tables(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"{BASE}state_dir: {tmp_path}\n")
    assert problem("rates.csv", load_config(tmp_path / "config.yaml").tables) == ""


NAMES = st.sampled_from(
    ["..", ".", "", "a", "*", "{a,b}", "{..", "}", "[", "]", "%2e%2e", "~", "\\"]
)


@given(st.lists(NAMES, max_size=8).map("/".join), st.sampled_from(["", "file:", "/no/such/job/"]))
def test_no_path_that_is_read_leads_upwards(path: str, start: str) -> None:
    if problem(start + path) == "":
        location = location_of(start + path, JOB)
        assert location.path.is_relative_to(JOB)
        assert ".." not in location.uri.split("/")
