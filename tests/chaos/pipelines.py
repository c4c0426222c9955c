"""The pipelines of the clusters under test: faults edit their beginning but not their end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path

from tests.chaos.dsl_ledger import BEST, OF_DSL, OF_SQL
from tests.chaos.lanes import LANES
from tests.chaos.ledger import BASE
from tests.chaos.tables import ROWS_TOPIC, processors
from tests.user_code.numbered import BUCKETS, PARTNERLESS, WINDOW_MS

START = """
- {id: Splitter, type: forward, to: [Adder, Counter], on_error: dead_letter}
- {id: Adder, type: sum, to: [Merger, Pairer], on_error: dead_letter}
- {id: Counter, type: count, to: [Merger, Pairer], on_error: dead_letter}
"""
WITHOUT_ADDER = """
- {id: Splitter, type: forward, to: [Counter], on_error: dead_letter}
- {id: Counter, type: count, to: [Merger, Pairer], on_error: dead_letter}
"""
REWIRED = """
- {id: Splitter, type: forward, to: [Relay, Counter], on_error: dead_letter}
- {id: Relay, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [Merger, Pairer], on_error: dead_letter}
- {id: Counter, type: count, to: [Merger, Pairer], on_error: dead_letter}
"""
_SUM = f"type: sum, config: {{constant: {BASE}}}"
_QUERY = f"type: sql, query: 'SELECT key, CAST(value AS BIGINT) + {BASE} AS value FROM input'"


_ASYNC = f"type: 'tests.user_code.slow:AsyncSum', config: {{constant: {BASE}, seconds: 0.005}}"
_SLOW = "type: 'tests.user_code.slow:Slow', config: {seconds: 0.001}"


class Kind(StrEnum):
    """The kind of processors in the pipelines."""

    PLAIN = "plain"
    SQL = "sql"
    """The auditor is a query of Spark SQL."""
    SLOW = "slow"
    """The splitter sleeps for each record, and the auditor is an `AsyncProcessor`."""
    DSL = "dsl"
    """There is also a topology with windows, a stream-stream join and a foreign-key join."""
    QUERIES = "queries"
    """There are also queries with windows, joins of streams, tables of a topic, and an aggregate of
    an aggregate."""
    TABLES = "tables"
    """There are also tables that get rows, see `tests/chaos/tables.py`."""


RESULTS: Mapping[Kind, Collection[bytes]] = {Kind.DSL: OF_DSL, Kind.QUERIES: OF_SQL}
"""What the results of windows and joins are, where there are any."""
_BRAKE = "BRAKE"
"""In the place of the file that slows a task down."""
_AUDITORS = {Kind.SQL: _QUERY, Kind.SLOW: _ASYNC}
_DSL = f"""
- id: Dsl
  type: topology
  builder: tests.user_code.numbered:build
  config: {{base: {BASE}}}
  on_error: dead_letter
- id: Lanes
  type: topology
  builder: tests.chaos.lanes:build
  config: {{base: {BASE}, brake: {_BRAKE}}}
  on_error: dead_letter
"""
_NUMBER = f"CAST(value AS BIGINT) - {BASE}"
_IS_NUMBERED = "key RLIKE '^k[0-9][0-9]$'"
_QUERIES = f"""
- id: Numbered
  type: sql
  query: SELECT key, {_NUMBER} AS value FROM source WHERE {_IS_NUMBERED}
  to: [Copied, Summed, Buckets, Best, Braked, Partners, Joined, Looked, Counted, Paired]
  on_error: dead_letter
- {{id: Copied, type: forward, to: [copied, dated]}}
- id: Summed
  type: sql
  query: >
    SELECT key,
      concat_ws(' ', 'sql sum', unix_millis(window.start), sum(CAST(value AS BIGINT))) AS value
    FROM Numbered GROUP BY key, window(timestamp, '{WINDOW_MS} milliseconds')
  emit: on_close
  grace: 1 s
  to: [sink]
- id: Buckets
  type: dataframe
  function: tests.user_code.numbered_frames:by_bucket
  group_by: {{window: {WINDOW_MS} ms}}
  emit: on_close
  grace: 10 min
  to: [sink]
- id: Best
  type: sql
  query: >
    SELECT key, concat_ws(' ', 'sql best', unix_millis(window.start), number) AS value
    FROM (SELECT key, window, number,
        row_number() OVER (PARTITION BY key, window ORDER BY number DESC) AS place
      FROM (SELECT key, CAST(value AS BIGINT) AS number,
          window(timestamp, '{WINDOW_MS} milliseconds') AS window FROM Numbered))
    WHERE place <= {BEST}
  emit: on_close
  grace: 1 s
  to: [sink]
- {{id: Braked, type: 'tests.chaos.lanes:Brake', config: {{file: {_BRAKE}}}, to: [Lanes]}}
- id: Lanes
  type: sql
  query: >
    SELECT lane AS key, concat_ws(' ', 'sql lane', unix_millis(window.start), count(*),
      sum(CAST(value AS BIGINT))) AS value
    FROM (SELECT value, timestamp,
        concat('lane', CAST(substring(key, 2, 2) AS INT) % {LANES}) AS lane FROM Braked)
    GROUP BY lane, window(timestamp, '{WINDOW_MS} milliseconds')
  emit: on_close
  grace: 0 s
  to: [sink]
- id: Partners
  type: sql
  query: SELECT key, value FROM Numbered WHERE CAST(value AS BIGINT) % {PARTNERLESS} <> 0
  to: [Joined, Paired]
- id: Joined
  type: sql
  query: >
    SELECT n.key, concat_ws(' ', 'sql join', n.value, coalesce(p.value, 0)) AS value
    FROM Numbered n LEFT JOIN Partners p
    ON n.key = p.key AND p.timestamp BETWEEN n.timestamp AND n.timestamp
  grace: 10 min
  to: [sink]
- id: Paired
  type: sql
  query: >
    SELECT n.key, concat_ws(' ', 'sql paired', n.value, p.value) AS value
    FROM Numbered n JOIN Partners p
    ON concat(n.key, ' ', n.value) = concat(p.key, ' ', p.value)
  ttl: 10 min
  to: [sink]
- id: Counted
  type: sql
  query: SELECT key, count(*) AS value FROM Numbered GROUP BY key
  to: [Totals]
- id: Totals
  type: sql
  query: >
    SELECT bucket AS key, concat_ws(' ', 'sql total', sum(CAST(value AS BIGINT)), count(*)) AS value
    FROM (SELECT value,
        concat('bucket', CAST(substring(key, 2, 2) AS INT) % {BUCKETS}) AS bucket FROM Counted)
    GROUP BY bucket
  to: [sink]
- id: Looked
  type: sql
  tables: {{last: {{topic: copies}}, kept: {{topic: dated_copies, history: 10 min}}}}
  query: >
    SELECT n.key, concat_ws(' ', 'sql table', n.value,
      coalesce(if(n.value % 2 = 0, l.value, k.value), 0)) AS value
    FROM Numbered n LEFT JOIN last l ON n.key = l.key LEFT JOIN kept k ON n.key = k.key
  to: [sink]
"""
_MORE = {Kind.DSL: _DSL, Kind.QUERIES: _QUERIES}
_TOPICS = {
    Kind.QUERIES: """
sources: {copies: copies_chaos, dated_copies: dated_copies_chaos}
sinks: {copied: copies_chaos, dated: dated_copies_chaos}
processors:""",
    Kind.TABLES: f"""
sources: {{rows: {ROWS_TOPIC}}}
sinks: {{written: {ROWS_TOPIC}}}
processors:""",
}


def pipeline(
    start: str, kind: Kind, gate: Path, brake: Path, may_hang: Path, *, database_url: str = ""
) -> str:
    """Return a whole pipeline that begins with `start`.

    The pairer rejects keys that begin with "gated" as long as the file `gate` does not exist.
    Its calls for some keys hang while the file `may_hang` exists. The
    file `brake` slows a task in front of a repartition down, if the pipeline has one; see `Brake`.
    `database_url` is that of PostgreSQL for tables, if there is one.
    """
    if kind is Kind.SLOW:
        start = start.replace("{id: Splitter, type: forward", f"{{id: Splitter, {_SLOW}")
    more = processors(BASE, database_url) if kind is Kind.TABLES else _MORE.get(kind, "")
    return f"""{_TOPICS.get(kind, "")}
{start}
- {{id: Auditor, {_AUDITORS.get(kind, _SUM)}, to: [Merger], on_error: dead_letter}}
- {{id: Merger, type: forward, to: [sink], on_error: dead_letter}}
- id: Pairer
  type: tests.user_code.pairing:Pairing
  to: [sink]
  config: {{base: {BASE}, gate: {gate}, may_hang: {may_hang}}}
  max_process_time_ms: 5000
  stores: [{{name: Waiting, value: json}}]
  on_error: dead_letter
{more.replace(_BRAKE, str(brake))}
"""
