"""Python functions of queries that end their process, on a real Spark without Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.streams.sql.spec import EndedQueryError, Queries, QuerySpec
from kafka_pipeline.testing import TopologyTestDriver
from tests.queries import FUNCTIONS, ROOT, run
from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

MANY = 20_000
"""Records that are more than a socket takes before it is read."""


@pytest.mark.parametrize("function", ["deadly", "deadly_batches"])
@pytest.mark.parametrize(
    ("value", "how"),
    long_but_the_first(
        [
            (
                "segfault",
                "SIGSEGV in native code of Python .*, called from .*deadly.py:.* end_process",
            ),
            ("abort", "SIGABRT in native code, called from .*deadly.py:.* in end_process"),
            ("exit", "it exited, or got SIGKILL"),
            ("kill", "it exited, or got SIGKILL"),
        ]
    ),
)
def test_function_that_ends_its_process_fails_on_that_batch_only(
    queries: Queries, function: str, value: str, how: str
) -> None:
    query = queries.open(QuerySpec(function=f"{FUNCTIONS}:{function}"))
    with pytest.raises(EndedQueryError, match=f"^ended the process: {how}"):
        run(query, [("k", "a"), ("k", value)])
    assert list(run(query, [("k", "a"), ("k", "b")]).values) == [b"a", b"b"]
    query.close()


def test_function_that_ends_its_process_before_it_has_read_the_batch_is_found_too(
    queries: Queries,
) -> None:
    query = queries.open(QuerySpec(function=f"{FUNCTIONS}:deadly"))
    with pytest.raises(EndedQueryError):
        run(query, [("k", "exit"), *[("k", "v" * 100)] * MANY])
    query.close()


def test_record_that_ends_the_process_of_a_function_is_a_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        f'{SMALL_CONFIG}modules: [{FUNCTIONS}]\npython_path: ["{ROOT}"]\n'
    )
    (tmp_path / "pipeline.yaml").write_text(
        f'- {{id: P, type: dataframe, function: "{FUNCTIONS}:deadly", to: [sink], '
        "on_error: dead_letter}\n"
    )
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        source = driver.create_input_topic("in")
        for value in (b"a", b"segfault", b"b"):
            source.pipe_input(b"k", value, timestamp=1)
        (letter,) = driver.create_output_topic("P_dead_letter").read_records()
        assert len(driver.create_output_topic("out").read_records()) == 2
    headers = dict(letter.headers)
    assert letter.value == b"segfault"
    assert headers["__streams.errors.exception"] == b"EndedProcess"
    message = headers["__streams.errors.message"]
    assert message is not None
    assert message.startswith(b"ended the process: SIGSEGV in native code")
