"""What the console says of a rehearsal."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.console.views.rehearsal import rehearsal
from tests.console_rehearsal import SINK_TOPIC, rehearsed


def shown(*, with_records: bool, with_values: bool = True) -> Any:
    found = rehearsed("secret key", '{"secret": 1}', with_values=with_values)
    return rehearsal(found, with_records=with_records)["rehearsal"]


def test_without_a_rehearsal_there_is_nothing() -> None:
    assert rehearsal(None, with_records=True) == {"rehearsal": None}


def test_both_versions_are_graphs_with_topics_by_their_names_in_the_job() -> None:
    versions = shown(with_records=False)["versions"]
    nodes = {side: [node["id"] for node in its["nodes"]] for side, its in versions.items()}
    assert nodes == {
        "old": [
            *("processor:Clean", "processor:Price", "processor:Cities", "processor:Audit"),
            *("topic:orders", "topic:orders_by_city", "topic:Price_dead_letter_shop"),
        ],
        "new": [
            *("processor:Clean", "processor:Price", "processor:Cities", "processor:Fraud"),
            *("topic:orders", "topic:orders_by_city"),
            *("topic:Price_dead_letter_shop", "topic:Fraud_dead_letter_shop"),
        ],
    }
    arc = {"from": "processor:Clean", "to": "processor:Fraud", "topic": "Clean_Fraud_shop"}
    assert arc | {"kind": "records"} in versions["new"]["arcs"]
    price = versions["new"]["nodes"][1]
    assert (price["change"], price["differs"]) == ("changed", ["settings"])
    assert (price["state"], price["tasks"], price["lag"]) == ("RUNNING", 4, 7)


def test_records_are_shown_only_to_those_who_may_see_them() -> None:
    hidden = shown(with_records=False)
    assert "secret" not in str(hidden)
    assert hidden["has_records"]
    example = hidden["report"]["outputs"][SINK_TOPIC]["examples"][0]
    assert example["differs"] == ["value"]
    assert example["old"] == {"partition": 1, "offset": 70, "timestamp_ms": 1_795_000_000_000}
    example = shown(with_records=True)["report"]["outputs"][SINK_TOPIC]["examples"][0]
    assert (example["key"], example["old"]["value"]) == ("secret key", '{"secret": 1}')


def test_a_command_that_publishes_no_records_shows_none() -> None:
    found = shown(with_records=True, with_values=False)
    assert not found["has_records"]
    assert "secret" not in str(found)
