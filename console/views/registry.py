"""All views by their addresses, and their encoding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kafka_pipeline.console.snapshot import Snapshot
from kafka_pipeline.console.views.graph import graph
from kafka_pipeline.console.views.history import history, rates
from kafka_pipeline.console.views.lag import lag
from kafka_pipeline.console.views.moves import moves
from kafka_pipeline.console.views.processor import processor
from kafka_pipeline.console.views.summary import summary
from kafka_pipeline.console.views.tasks import tasks
from kafka_pipeline.console.views.topics import topics
from kafka_pipeline.console.views.transactions import transactions

VIEWS: Mapping[str, Callable[[Snapshot], dict[str, Any]]] = {
    "summary": lambda _: {},
    "graph": graph,
    "tasks": tasks,
    "lag": lag,
    "transactions": transactions,
    "moves": moves,
    "history": history,
    "rates": rates,
    "topics": topics,
}
_PROCESSOR = "processors/"


def encode(snapshot: Snapshot, view: str) -> bytes | None:
    """Return a view as JSON; None if there is no such view.

    `view` is a name in `VIEWS`, or `processors/` with the id of a processor. Each view also has the
    summary, so that all that a page shows is of the same moment.
    """
    found: dict[str, Any] | None = None
    if view in VIEWS:
        found = VIEWS[view](snapshot)
    elif view.startswith(_PROCESSOR):
        found = processor(snapshot, view.removeprefix(_PROCESSOR))
    if found is None:
        return None
    body = {"summary": summary(snapshot), **found}
    return json.dumps(body, separators=(",", ":")).encode()
