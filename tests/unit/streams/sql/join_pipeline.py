"""A pipeline that joins orders with payments, for the tests next to this file."""

from __future__ import annotations

import json

WITHIN = (
    "p.timestamp BETWEEN o.timestamp - INTERVAL 5 MINUTES AND o.timestamp + INTERVAL 10 MINUTES"
)
ON = f"ON o.key = p.key AND {WITHIN}"


def pipeline(query: str, more: str = "", schema: str = "n INT") -> str:
    """Return a pipeline whose processor P runs a query of the inputs orders and payments."""
    return f"""
sources: {{orders: orders, payments: payments}}
sinks: {{late: late}}
processors:
- id: P
  type: sql
  from: [orders, payments]
  format: json
  schema: {schema}
  query: {json.dumps(query)}
  on_error: skip
  to: [sink]
  {more}
"""
