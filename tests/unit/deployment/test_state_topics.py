"""State that would be lost is found before a job starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.state_topics import check_moved_state, check_state_topics
from tests.unit.deployment.test_partitions import SOURCES, FakeAdmin, in_kafka


class FakeKafka(FakeAdmin):
    """Lists its topics too."""

    def topics(self) -> dict[str, int]:
        return dict(self._counts)


def check_state(text: str, counts: Mapping[str, int], former: Pipeline | None = None) -> None:
    loaded = in_kafka(text, counts)
    kafka = cast(Admin, FakeKafka(counts))
    check_state_topics(loaded, kafka)
    check_moved_state(loaded, kafka, former)


COUNTS_A = SOURCES + "- {id: P, type: count, from: [a], to: [c]}"


def test_input_that_has_grown_is_named_and_the_state_is_to_be_kept() -> None:
    with pytest.raises(ConfigError) as error:
        check_state(COUNTS_A, {"a_topic": 4, "state_topic_P_job": 2})
    message = str(error.value)
    assert 'the input a_topic of "P" has 4 partitions, and had 2' in message
    assert "Keep the topic state_topic_P_job" in message
    assert "When a source gets more partitions" in message


@pytest.mark.parametrize("counts", [{"a_topic": 4, "state_topic_P_job": 4}, {"a_topic": 4}, {}])
def test_state_that_fits_its_input_or_is_new_is_fine(counts: Mapping[str, int]) -> None:
    check_state(COUNTS_A, counts)


def test_input_that_is_no_topic_of_the_user_is_not_blamed() -> None:
    """Then `parallelism` has changed, and the arc does not fit either."""
    text = SOURCES + "- {id: F, type: sum, from: [a], to: [P]}\n- {id: P, type: count, to: [c]}"
    check_state(text, {"a_topic": 4, "state_topic_P_job": 3})


ENRICHED = """
processors:
- id: W
  type: topology
  builder: tests.user_code.topologies:enriched
  config: {stream: a_topic, table: b_topic, rows: d_topic, out: c_topic}
"""
INPUTS = {"a_topic": 2, "b_topic": 2, "d_topic": 2}


def test_state_of_a_group_that_now_has_another_name_is_named_with_its_topic() -> None:
    """In the group, the source of a_topic came first, and now the table does."""
    with pytest.raises(ConfigError) as error:
        check_state(ENRICHED, {**INPUTS, "state_topic_W-Before_Found_job": 2})
    message = str(error.value)
    assert 'the store "Found" of "W" was in the group "Before"' in message
    assert 'would begin empty in the group "Found-source"' in message
    assert "delete the topic state_topic_W-Before_Found_job" in message


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"state_topic_W-Found-source_Found_job": 2},
        {"state_topic_W-Found-source_Found_job": 2, "state_topic_W-Before_Found_job": 2},
        {"state_topic_V-Before_Found_job": 2},
        {"state_topic_W-Before_Lost_job": 2},
        {"state_topic_W-Before_Found_other": 2},
    ],
)
def test_state_in_its_place_and_that_of_others_is_fine(state: Mapping[str, int]) -> None:
    check_state(ENRICHED, {**INPUTS, **state})


def test_state_of_a_store_that_goes_is_not_taken_for_that_of_one_whose_name_is_its_end() -> None:
    counted = """
    - id: W
      type: topology
      builder: tests.user_code.topologies:counted_words
      config: {lines: a_topic, words: c_topic, store: STORE}
    """
    kafka = {"a_topic": 2, "state_topic_W-ByWord_All_Words_job": 2}
    former = in_kafka(counted.replace("STORE", "All_Words"), kafka)
    wanted = counted.replace("STORE", "Words")
    check_state(wanted, kafka, former)
    moved = {**kafka, "state_topic_W-Before_Words_job": 2}
    with pytest.raises(ConfigError, match='was in the group "Before"'):
        check_state(wanted, moved, former)
