"""`type: table` in pipeline.yaml: what is read, and what is refused, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from msgspec import structs

from kafka_pipeline import serdes
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.references import HostReferences, with_values
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.operations.rehearsal.shadow import shadow_pipeline
from kafka_pipeline.streams.backfill.plan import make_plan
from kafka_pipeline.streams.pipeline.kinds.table_sink import TableSink
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.testing import TopologyTestDriver
from tests.small_config import SMALL_CONFIG

CONFIG = f"""{SMALL_CONFIG}
tables:
  write_paths: [lake]
  write_urls: ["postgresql://h/shop", "postgresql://i/", "https://c/api"]
secrets: {{variables: [URL, PASSWORD]}}
"""
TABLE = "format: delta, path: lake/t, schema: n BIGINT"
ROWS = "format: postgres, table: t, schema: n BIGINT NOT NULL"
FILES = "uri: 'sqlite:///lake/c.db', warehouse: lake"
SPEC = TableSinkSpec(format="delta", path="lake/t", schema="n BIGINT")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def written(config: Path, text: str) -> Path:
    path = config.parent / "pipeline.yaml"
    path.write_text(text)
    return path


def problems(config: Path, text: str) -> list[str]:
    path = written(config, text)
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path, load_config(config))
    return str(caught.value).replace(f"{path}:", "").splitlines()


def test_a_table_needs_neither_a_target_nor_a_sink(config: Path) -> None:
    path = written(config, f"- {{id: A, type: table, {TABLE}}}")
    (processor,) = load_pipeline(path, load_config(config)).processors
    assert processor.spec == SPEC
    assert processor.to == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "{id: A, type: table, path: lake/t, schema: n INT}",
            '1:3: missing key "format" (such as delta)',
        ),
        (f"{{id: A, type: table, {TABLE}, to: [sink]}}", '1:71: unknown key "to"'),
        (f"{{id: A, type: table, {TABLE}, was: B}}", '1:71: unknown key "was"'),
        (
            "{id: A, type: table, format: delta, path: lake/t, schema: n VARCHAR(3)}",
            '1:8: "A": schema: the type of column "n" is not one that tables have',
        ),
        (f"{{id: A, type: table, {TABLE}, partition_by: m}}", 'partition_by: "m" is not a column'),
        (f"{{id: A, type: table, {TABLE}, partition_by: n}}", "name fewer than all columns"),
        *(
            (
                f"{{id: A, type: table, format: delta, path: lake/t, schema: 'n INT, p {type_}', "
                "partition_by: p}",
                f'partition_by: column "p" {problem}',
            )
            for type_, problem in (
                ("DECIMAL(4, 2)", "is a DECIMAL, of which delta-rs cannot write negative ones"),
                ("BINARY", "is BINARY, which delta-rs writes as other bytes"),
                ("DOUBLE", "is a FLOAT or DOUBLE, of which equal ones may differ"),
                ("ARRAY<INT>", "has several values"),
            )
        ),
        (
            "{id: A, type: table, format: delta, path: elsewhere, schema: n INT}",
            '1:8: "A": path "elsewhere" is outside of what config.yaml allows: list it, or a '
            "folder that it is in, under tables: {write_paths: […]}",
        ),
        (
            "{id: A, type: table, format: delta, path: 'lake/*', schema: n INT}",
            '1:8: "A": path has wildcards: name one folder',
        ),
        (
            "{id: A, type: table, format: delta, path: '${LAKE}/t', schema: n INT}",
            '1:8: "A": path "${LAKE}/t" has a reference, which gets no value there',
        ),
        (
            "{id: A, type: table, format: delta, path: 's3://u:pass@b/t', schema: n INT}",
            "pipeline.yaml goes onto a topic",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(config: Path, text: str, problem: str) -> None:
    assert any(problem in each for each in problems(config, f"- {text}"))


@pytest.mark.parametrize(
    "more",
    [
        "url: 'postgresql://h/shop'",
        "url: 'postgresql://i/other', user: ann, password: '${PASSWORD}'",
        "url: '${URL}', mode: upsert, key: n",
    ],
)
def test_a_table_of_a_database_that_is_allowed_is_right(config: Path, more: str) -> None:
    path = written(config, f"- {{id: A, type: table, {ROWS}, {more}}}")
    assert load_pipeline(path, load_config(config)).processors[0].to == ()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("", 'missing key "url" (the database, as postgresql://host:5432/database)'),
        ("url: 'postgresql://h/other'", "url is not allowed by tables: {write_urls: […]}"),
        ("url: 'postgresql://i/x?options=y'", "url is not allowed by tables: {write_urls: […]}"),
        ("url: '${SECRET}'", '"A": url: config.yaml does not allow the variable'),
        ("url: 'postgresql://h/shop', password: x", "password is a secret, by its name"),
        ("url: 'postgresql://i/shop', path: x", "format: postgres takes no path"),
        ("url: 'postgresql://i/shop', key: n", "key belongs to mode: upsert"),
        ("url: 'postgresql://i/shop', mode: upsert", "mode: upsert needs key"),
        ("url: 'postgresql://i/shop', mode: upsert, key: m", '"A": key: "m" is not a column'),
    ],
)
def test_a_mistake_in_a_table_of_a_database_is_reported(
    config: Path, more: str, problem: str
) -> None:
    found = problems(config, f"- {{id: A, type: table, {ROWS}, {more}}}")
    assert any(problem in each for each in found), found


def iceberg(catalog: str, table: str = "shop.t", more: str = "") -> str:
    return (
        f"- {{id: A, type: table, format: iceberg, catalog: {{{catalog}}}, table: {table}, "
        f"schema: n INT{more}}}"
    )


@pytest.mark.parametrize(
    "catalog",
    [
        f"type: sql, {FILES}",
        "type: sql, uri: 'postgresql+psycopg2://ann:${PASSWORD}@h/shop', warehouse: lake/x",
        "type: rest, uri: 'https://c/api', token: '${PASSWORD}', s3.region: x",
        "type: rest, uri: '${URL}', name: lake",
    ],
)
def test_a_catalog_that_is_allowed_is_right(config: Path, catalog: str) -> None:
    path = written(config, iceberg(catalog))
    assert load_pipeline(path, load_config(config)).processors[0].to == ()


@pytest.mark.parametrize(
    ("catalog", "table", "more", "problem"),
    [
        (FILES, "s.t", "", 'missing key "type" (sql or rest)'),
        (
            "type: sql, uri: 'postgresql://h/shop'",
            "s.t",
            "",
            "catalog: type: sql needs a warehouse",
        ),
        (f"type: hive, {FILES}", "s.t", "", 'type must be "sql" or "rest"'),
        (f"type: sql, {FILES}", "t", "", "table must be namespace.name"),
        (f"type: sql, {FILES}", "s.t", ", path: lake/t", "format: iceberg takes no path"),
        (f"type: sql, {FILES}", "s.t", ", mode: upsert, key: n", "PyIceberg writes no files of"),
        (f"type: sql, {FILES}, py-io-impl: os.x", "s.t", "", 'unknown key "py-io-impl"'),
        ("type: rest, uri: x, s3.endpoint: y", "s.t", "", 'unknown key "s3.endpoint"'),
        (f"type: rest, {FILES}, token: abc", "s.t", "", "catalog.token is a secret"),
        (
            "type: sql, uri: 'sqlite:///lake/c.db', warehouse: elsewhere",
            *("s.t", "", 'catalog.warehouse "elsewhere" is outside of what config.yaml allows'),
        ),
        (
            "type: sql, uri: 'sqlite:////etc/c.db', warehouse: lake",
            *("s.t", "", 'catalog.uri "/etc/c.db" is outside of what config.yaml allows'),
        ),
        *(
            (
                f"type: rest, uri: 'https://{place}'",
                *("s.t", "", "catalog.uri is not allowed by tables: {write_urls: […]}"),
            )
            for place in ("c/other", "elsewhere\\@c/api", "elsewhere/@c/api", "ann@elsewhere@c/api")
        ),
    ],
)
def test_a_mistake_in_a_catalog_is_reported(
    config: Path, catalog: str, table: str, more: str, problem: str
) -> None:
    found = problems(config, iceberg(catalog, table, more))
    assert any(problem in each for each in found), found


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("path: 's3://b/t'", 'path "s3://b/t" is not a folder of the host'),
        ("path: lake/t, partition_by: n", "format: parquet takes no partition_by"),
        ("path: lake/t, mode: upsert, key: n", "so none is ever changed. Write a Delta table"),
    ],
)
def test_what_a_folder_of_parquet_files_cannot_be_is_reported(
    config: Path, more: str, problem: str
) -> None:
    config.write_text(CONFIG.replace("[lake]", "[lake, 's3://b/']"))
    files = "format: parquet, schema: 'n INT NOT NULL, m INT'"
    found = problems(config, f"- {{id: A, type: table, {files}, {more}}}")
    assert any(problem in each for each in found), found


def test_references_of_a_catalog_have_values_where_its_tasks_run() -> None:
    settings = TableSettings(
        folder=Path("/home/job"), write_paths=("lake",), write_urls=("postgresql://h/shop",)
    )
    catalog = {"type": "sql", "uri": "postgresql://${USER}:${PASSWORD}@h/shop", "warehouse": "lake"}
    spec = TableSinkSpec(format="iceberg", catalog=catalog, table="s.t", schema="n INT")
    allowed = SecretSettings(variables=("USER", "PASSWORD"))
    for user, is_allowed in (("ann", True), ("ann@x/y?", False), ("a:b@x", False), ("x\\", False)):
        values = HostReferences(allowed, "", {"USER": user, "PASSWORD": "pen"})
        valued = with_values(spec, values, "A")
        if not is_allowed:
            with pytest.raises(ConfigError, match="uri is not allowed"):
                TableSink().located(valued, settings)
            continue
        found = TableSink().located(valued, settings)
        assert found.catalog["uri"] == "postgresql://ann:pen@h/shop"
        assert found.catalog["warehouse"] == "file:///home/job/lake"


@pytest.mark.parametrize(
    ("schema", "key", "more", "problem"),
    [
        ("n INT", "n", "", 'key: column "n" must be NOT NULL'),
        ("n DOUBLE NOT NULL", "n", "", 'key: column "n" is of a type that cannot be a key'),
        ("n INT NOT NULL", "[n, n]", "", "key: a column is given twice"),
        ("n INT NOT NULL", "[n, k]", "record_columns: {key: k}", 'column "k" is of record_columns'),
        ("n INT", "o", "record_columns: {offset: o}", 'column "o" is of record_columns'),
        ("__deleted INT", "k", "record_columns: {key: k}", "has a name that the engine needs"),
        ("é INT".replace("é", "é" * 32), "k", "record_columns: {key: k}", "63 bytes of a name"),
    ],
)
def test_columns_that_a_key_or_postgresql_cannot_have_are_reported(
    config: Path, schema: str, key: str, more: str, problem: str
) -> None:
    (found,) = problems(
        config,
        "- {id: A, type: table, format: postgres, url: 'postgresql://h/shop', table: t, "
        f"mode: upsert, key: {key}, schema: '{schema}', {more}}}",
    )
    assert problem in found


def test_two_inputs_are_refused(config: Path) -> None:
    (problem,) = problems(
        config,
        f"""
sources: {{a: ta, b: tb}}
processors:
- {{id: A, type: table, from: [a, b], {TABLE}}}
""",
    )
    assert '"A" has several inputs, a, b: a table has one' in problem


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("auto_offset_reset: latest", "but a table has all records"),
        ("value: string", "table takes records as they are"),
    ],
)
def test_sources_that_a_table_cannot_read_are_refused(
    config: Path, source: str, reason: str
) -> None:
    (problem,) = problems(
        config,
        f"""
sources: {{a: {{topic: ta, {source}}}}}
processors:
- {{id: A, type: table, from: [a], {TABLE}}}
""",
    )
    assert reason in problem


def test_the_place_is_that_of_the_host_or_a_uri() -> None:
    settings = TableSettings(folder=Path("/home/job"), write_paths=("lake", "s3://bucket/lake"))
    places = {"lake/t": "/home/job/lake/t", "s3://bucket/lake/t": "s3://bucket/lake/t"}
    for path, place in places.items():
        spec = TableSink().located(structs.replace(SPEC, path=path), settings)
        assert spec.path == place


def test_rehearsals_and_backfills_are_refused(config: Path) -> None:
    path = written(config, f"- {{id: A, type: table, {TABLE}}}")
    with pytest.raises(ConfigError, match="a rehearsal would write it too"):
        shadow_pipeline(load_pipeline(path, load_config(config)), load_config(config))
    with pytest.raises(ConfigError, match="which a backfill does not"):
        make_plan(config, path, ["in=x"], "y")


def test_another_driver_appends_to_the_table(config: Path) -> None:
    path = written(config, f"- {{id: A, type: table, {TABLE}, on_error: skip}}")
    for number in (1, 2):
        with TopologyTestDriver.of_pipeline(config, path) as driver:
            numbers = driver.create_input_topic("in", serdes.bytes, serdes.json)
            numbers.pipe_input(b"k", {"n": number})
            numbers.pipe_input(b"k", {"n": "a text"})
            numbers.pipe_input(b"k", {"n": number * 10})
    table = DeltaTable(str(config.parent / "lake/t")).to_pyarrow_table()
    assert sorted(table["n"].to_pylist()) == [1, 2, 10, 20]
