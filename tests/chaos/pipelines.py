"""The pipelines of the clusters under test: faults edit their beginning but not their end."""

from __future__ import annotations

from enum import StrEnum

from tests.chaos.ledger import BASE

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


_AUDITORS = {Kind.PLAIN: _SUM, Kind.SQL: _QUERY, Kind.SLOW: _ASYNC, Kind.DSL: _SUM}
_DSL = f"""
- id: Dsl
  type: topology
  builder: tests.user_code.numbered:build
  config: {{base: {BASE}}}
  on_error: dead_letter
"""


def pipeline(start: str, kind: Kind) -> str:
    """Return a whole pipeline that begins with `start`."""
    if kind is Kind.SLOW:
        start = start.replace("{id: Splitter, type: forward", f"{{id: Splitter, {_SLOW}")
    return f"""
{start}
- {{id: Auditor, {_AUDITORS[kind]}, to: [Merger], on_error: dead_letter}}
- {{id: Merger, type: forward, to: [sink], on_error: dead_letter}}
- id: Pairer
  type: tests.user_code.pairing:Pairing
  to: [sink]
  config: {{base: {BASE}}}
  stores: [{{name: Waiting, value: boolean}}]
  on_error: dead_letter
{_DSL if kind is Kind.DSL else ""}
"""
