"""The patterns of sources find the topics of users, not those of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.topics import ANY_SIZE_BYTES
from kafka_pipeline.deployment.prepare import with_partitions, with_topics_of_patterns
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.small_config import small_config

CONFIG = small_config(job_name="job", parallelism=2, modules=("tests.user_code",))
NAMES = CONFIG.topic_names
DEFAULT_LIMIT = 1_048_588


class FakeAdmin:
    """Has topics, with their partitions; those of `of_engine` have the limit of a job's topics."""

    def __init__(
        self,
        counts: Mapping[str, int],
        of_engine: Sequence[str] = (),
        engine_limit: int = ANY_SIZE_BYTES,
    ) -> None:
        self._counts = counts
        self._of_engine = of_engine
        self._engine_limit = engine_limit
        self.asked: list[str] = []
        self.settings: dict[str, dict[str, str]] = {}
        self.short: list[str] = []
        self.open: dict[tuple[str, int], int] = {}
        """Where transactions are open."""
        self.ids: dict[str, str] = {}

    def topics(self) -> dict[str, int]:
        return dict(self._counts)

    def partition_counts(self, names: Sequence[str]) -> dict[str, int]:
        wanted = set(names)
        return {name: count for name, count in self._counts.items() if name in wanted}

    def oldest_offsets(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 3)

    def high_watermarks(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 10)

    def stable_ends(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {place: self.open.get(place, 10) for place in places}

    def topic_settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        return {name: self.settings[name] for name in names}

    def short_of_copies(self, settings: Mapping[str, Mapping[str, str]]) -> list[str]:
        return [each for each in self.short if each.partition("[")[0] in settings]

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.ids.get(name, "first") for name in names}

    def size_limits(self, names: Sequence[str]) -> dict[str, int]:
        self.asked += names
        return {
            name: self._engine_limit if name in self._of_engine else DEFAULT_LIMIT for name in names
        }


def pipeline(folder: Path, pattern: str = "(?!gathered$).*", more: str = "") -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(
        '- {id: W, type: topology, builder: "tests.user_code.lookups:gather", '
        f'config: {{pattern: "{pattern}", gathered: gathered}}, on_error: dead_letter}}\n{more}'
    )
    return load_pipeline(path, CONFIG)


def read(loaded: Pipeline, admin: FakeAdmin, config: Config = CONFIG) -> tuple[str, ...]:
    """Return the inputs of the pipeline once the cluster was asked."""
    found = with_topics_of_patterns(loaded, config, cast(Admin, admin))
    return found.in_topics(found.processor("W-All"))


def test_topics_of_users_are_read(tmp_path: Path) -> None:
    admin = FakeAdmin({"clicks": 1, "views": 1, "orders_job": 1})
    assert read(pipeline(tmp_path), admin) == ("clicks", "orders_job", "views")


@pytest.mark.parametrize("job", ["_job", "_other", ""])
@pytest.mark.parametrize(
    "topic",
    [
        "threads_jm_topic",
        "threads_tm_topic",
        "heartbeat_topic",
        "heartbeat_events_topic",
        "processors_topic_7",
    ],
)
def test_control_topics_of_all_jobs_are_left_out(job: str, topic: str, tmp_path: Path) -> None:
    topics = {"clicks": 1, f"threads_jm_topic{job}": 1, f"{topic}{job}": 1}
    assert read(pipeline(tmp_path), FakeAdmin(topics)) == ("clicks",)


@pytest.mark.parametrize("job", ["_job", "_other", ""])
@pytest.mark.parametrize("topic", ["state_topic_A_Store", "A_dead_letter", "A_B"])
def test_states_dead_letters_and_arcs_of_all_jobs_are_left_out(
    job: str, topic: str, tmp_path: Path
) -> None:
    """Also those that this job had with another pipeline.yaml."""
    name = f"{topic}{job}"
    admin = FakeAdmin({"clicks": 1, f"threads_jm_topic{job}": 1, name: 1}, of_engine=[name])
    assert read(pipeline(tmp_path), admin) == ("clicks",)


def test_arcs_with_a_limit_that_config_yaml_lowers_are_left_out(tmp_path: Path) -> None:
    admin = FakeAdmin(
        {"clicks": 1, "threads_jm_topic_other": 1, "A_B_other": 1}, ["A_B_other"], 8_388_608
    )
    config = replace(CONFIG, max_message_bytes=8_388_608)
    assert read(pipeline(tmp_path), admin, config) == ("clicks",)


def test_topics_that_end_like_those_of_a_job_are_read_if_users_made_them(tmp_path: Path) -> None:
    admin = FakeAdmin({"clicks_other": 1, "threads_jm_topic_other": 1})
    assert read(pipeline(tmp_path), admin) == ("clicks_other",)
    assert admin.asked == ["clicks_other"]


def test_topics_of_this_job_are_left_out_whatever_their_limits(tmp_path: Path) -> None:
    own = ["A_B_job", "state_topic_B_job", "W-All_dead_letter_job"]
    more = "- {id: A, type: sum, to: [B]}\n- {id: B, type: count, to: [sink]}\n"
    admin = FakeAdmin({"clicks": 1, **dict.fromkeys(own, 1)})
    assert read(pipeline(tmp_path, more=more), admin) == ("clicks",)


def test_kafkas_own_topics_are_left_out(tmp_path: Path) -> None:
    admin = FakeAdmin({"clicks": 1, "__consumer_offsets": 50, "__transaction_state": 50})
    assert read(pipeline(tmp_path), admin) == ("clicks",)


def test_only_what_could_be_read_is_asked_for_its_limit(tmp_path: Path) -> None:
    admin = FakeAdmin({"clicks_job": 1, "views_job": 1})
    assert read(pipeline(tmp_path, "clicks.*"), admin) == ("clicks_job",)
    assert admin.asked == ["clicks_job"]


def test_a_pattern_that_only_topics_of_jobs_match_is_refused(tmp_path: Path) -> None:
    admin = FakeAdmin({"A_B_job": 1, "clicks": 1}, of_engine=["A_B_job"])
    with pytest.raises(ConfigError, match=r'no topic matches the pattern "A_\.\*" of a source'):
        read(pipeline(tmp_path, "A_.*"), admin)


def test_nothing_is_asked_without_patterns(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("- {id: A, type: sum, to: [sink]}")
    loaded = load_pipeline(path, CONFIG)
    nobody = cast(Admin, None)
    assert with_topics_of_patterns(loaded, CONFIG, nobody) is loaded


def test_brokers_that_refuse_to_tell_are_said_so(tmp_path: Path) -> None:
    class Refusing(FakeAdmin):
        def size_limits(self, names: Sequence[str]) -> dict[str, int]:
            raise NonRetriableError("DescribeConfigs of clicks_job: denied")

    with pytest.raises(UnavailableError, match="which topics belong to jobs: DescribeConfigs of"):
        read(pipeline(tmp_path), Refusing({"clicks_job": 1}))


def test_partitions_of_what_was_found_count_as_those_of_other_sources(tmp_path: Path) -> None:
    admin = cast(Admin, FakeAdmin({"clicks": 3, "views": 3}))
    found = with_topics_of_patterns(pipeline(tmp_path), CONFIG, admin)
    loaded = with_partitions(found, admin)
    units = replicas(loaded)
    assert [str(unit.task) for unit in units] == ["W-All_0", "W-All_1", "W-All_2"]
    assert {unit.in_topics for unit in units} == {("clicks", "views")}
    specs = {spec.name: spec.partitions for spec in loaded.data_topics(CONFIG.replication_factor)}
    assert (specs["clicks"], specs["views"], specs["gathered"]) == (3, 3, 2)


def test_topics_with_different_numbers_of_partitions_are_refused_with_both(tmp_path: Path) -> None:
    admin = cast(Admin, FakeAdmin({"clicks": 3, "views": 4}))
    found = with_topics_of_patterns(pipeline(tmp_path), CONFIG, admin)
    with pytest.raises(ConfigError, match="clicks has 3, views has 4"):
        with_partitions(found, admin)


def test_a_topic_that_came_later_changes_the_replicas_at_the_next_start(tmp_path: Path) -> None:
    """So the tasks that run are given the new input."""
    loaded = pipeline(tmp_path)

    def fingerprints(*topics: str) -> list[str]:
        admin = cast(Admin, FakeAdmin(dict.fromkeys(topics, 2)))
        found = with_topics_of_patterns(loaded, CONFIG, admin)
        return [unit.fingerprint for unit in replicas(found)]

    assert fingerprints("clicks") == fingerprints("clicks")
    assert not set(fingerprints("clicks")) & set(fingerprints("clicks", "views"))


def test_topics_of_a_former_version_that_are_gone_are_left_out(tmp_path: Path) -> None:
    """A rollback would make them again, empty."""
    before = pipeline(tmp_path, "day_.*")
    admin = cast(Admin, FakeAdmin({"day_1": 1, "day_2": 1}))
    before = with_topics_of_patterns(before, CONFIG, admin)
    assert read(before, FakeAdmin({"day_2": 1, "day_3": 1})) == ("day_2", "day_3")
    with pytest.raises(ConfigError, match="no topic matches"):
        read(before, FakeAdmin({"other": 1}))
