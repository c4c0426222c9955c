"""The pipelines of the clusters that are broken: their beginnings are edited, the end stays."""

from __future__ import annotations

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


def pipeline(start: str, with_query: bool) -> str:
    """Return a whole pipeline; `with_query`, the auditor is one of Spark SQL."""
    return f"""
{start}
- {{id: Auditor, {_QUERY if with_query else _SUM}, to: [Merger], on_error: dead_letter}}
- {{id: Merger, type: forward, to: [sink], on_error: dead_letter}}
- id: Pairer
  type: tests.user_code.pairing:Pairing
  to: [sink]
  config: {{base: {BASE}}}
  stores: [{{name: Waiting, value: boolean}}]
  on_error: dead_letter
"""
