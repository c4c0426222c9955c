"""The state of queries that is computed in rounds is that of one stream from the start."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from tests.history import Here, History
from tests.rounds import Case, WindowsModel, rows, skewed

pytestmark = pytest.mark.integration

NAME = "concat('name', cast(value AS INT) % 7)"


def pipeline(query: str, more: str = "") -> str:
    return f'- id: Shop\n  type: sql\n  query: "{query}"\n  to: [sink]\n  {more}\n'


def test_windows_behind_the_topic_of_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: LocalQueries
) -> None:
    result = "concat('count ', unix_millis(window.start), ' ', count(*)) AS value"
    query = (
        f"SELECT {NAME} AS key, {result} FROM input GROUP BY {NAME}, window(timestamp, '1 second')"
    )
    text = pipeline(query, "emit: on_close\n  grace: 500 ms")
    case = Case(History(tmp_path, text, 3), "Shop", skewed(300))
    case.advance(monkeypatch, 0.1, 0.4, 0.7, jobs=Here(local=local))
    case.advance(monkeypatch, 1, jobs=Here(local=local), with_results=True)
    before, after = (WindowsModel.of(case.log, case.log.ends(share)) for share in (0.7, 1))
    found = Counter((key, value) for key, value, _ in case.results())
    assert found == after.closed(before.now, after.now)
    assert found, "nothing is compared"


def test_groups_without_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: LocalQueries
) -> None:
    query = f"SELECT {NAME} AS key, cast(count(*) AS STRING) AS value FROM input GROUP BY {NAME}"
    case = Case(History(tmp_path, pipeline(query), 2), "Shop", rows(200))
    case.advance(monkeypatch, 0.3, 0.6, jobs=Here(local=local))
    case.advance(monkeypatch, 1, jobs=Here(local=local), with_results=True)
    counted = Counter(b"name%d" % (int(value or b"") % 7) for _, value, *_ in case.rows)
    found: dict[bytes | None, int] = {}
    for key, value, _ in case.results():
        found[key] = max(int(value or b"0"), found.get(key, 0))
    assert found == counted


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "more"),
    [
        ("SELECT DISTINCT key, value FROM input", ""),
        (
            "SELECT key, cast(sum(cast(value AS INT)) AS STRING) AS value FROM input "
            "GROUP BY key, session_window(timestamp, '300 milliseconds')",
            "emit: on_close\n  grace: 500 ms",
        ),
    ],
)
def test_queries_whose_groups_have_one_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local: LocalQueries,
    query: str,
    more: str,
) -> None:
    case = Case(History(tmp_path, pipeline(query, more), 2), "Shop", rows(150))
    case.advance(monkeypatch, 0.3, 0.6, jobs=Here(local=local))
    case.advance(monkeypatch, 1, jobs=Here(local=local), with_results=True)
    found = case.results()
    assert found == case.expected(0.6)
    assert found, "nothing is compared"
