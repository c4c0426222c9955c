"""What the shadow of a job is called, which topics it has, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from kafka_pipeline.operations.rehearsal import shadow
from kafka_pipeline.operations.rehearsal.comparer import Output
from kafka_pipeline.operations.rehearsal.passage import hops
from kafka_pipeline.streams.pipeline.units import group_of
from tests.small_config import small_config
from tests.unit.streams.pipeline.loading import load

LIVE = small_config(
    job_name="shop", tm_number=2, parallelism=2, source_topic="orders", sink_topic="totals"
)
OLD = """
sinks: {audit: audit_log, gone: gone_log}
processors:
- {id: Adder, type: sum, to: [Counter, audit], on_error: dead_letter}
- {id: Counter, type: count, to: [sink, gone]}
"""
NEW = """
sources: {again: audit_log}
sinks: {audit: audit_log, more: more_log}
processors:
- {id: Adder, type: sum, to: [Counter, audit], on_error: dead_letter}
- {id: Counter, type: count, to: [sink]}
- {id: Reader, type: forward, from: [again], to: [more], on_error: dead_letter}
"""
SHADOW = shadow.shadow_config(LIVE)


def shadowed() -> Pipeline:
    return shadow.shadow_pipeline(load(NEW, SHADOW), LIVE)


def test_a_shadow_writes_to_sinks_of_its_own_and_reads_the_same_sources() -> None:
    pipeline = shadowed()
    adder, reader = pipeline.processor("Adder"), pipeline.processor("Reader")
    assert pipeline.in_topics(adder) == ("orders",)
    assert pipeline.out_topics(adder) == (
        "Adder_Counter_shop-rehearsal",
        "rehearsal-of-audit_log_shop-rehearsal",
    )
    assert pipeline.in_topics(reader) == ("audit_log",)
    written = {*shadow.written_topics(pipeline), *pipeline.arcs}
    assert all(topic.endswith("_shop-rehearsal") for topic in written)


def test_outputs_of_both_versions_are_compared() -> None:
    live = load(OLD, LIVE)
    ending = "_shop-rehearsal"
    assert shadow.outputs_of(live, shadowed(), "shop") == [
        Output("audit_log", "audit_log", f"rehearsal-of-audit_log{ending}"),
        Output("totals", "totals", f"rehearsal-of-totals{ending}"),
        Output("gone_log", "gone_log", None),
        Output("more_log", None, f"rehearsal-of-more_log{ending}"),
        Output(
            "dead letters of Adder",
            "Adder_dead_letter_shop",
            f"Adder_dead_letter{ending}",
            is_sink=False,
        ),
        Output("dead letters of Reader", None, f"Reader_dead_letter{ending}", is_sink=False),
    ]


def test_settings_of_a_shadow_have_no_ports_and_keep_references() -> None:
    given = {"server_ip": "${BROKER}", "metrics_port": 1, "state_port": 2, "console_port": 3}
    settings = shadow.shadow_settings({**given, "num_standby_replicas": 1}, LIVE, 1, "there")
    assert settings == {
        "server_ip": "${BROKER}",
        "job_name": "shop-rehearsal",
        "sink_topic": "rehearsal-of-totals_shop-rehearsal",
        "tm_number": 1,
        "num_standby_replicas": 0,
        "state_dir": "there",
    }


def test_dead_letters_of_a_processor_with_another_id_are_compared() -> None:
    text = OLD.replace("id: Adder,", "id: Plus, was: Adder,")
    renamed = shadow.shadow_pipeline(load(text, SHADOW), LIVE)
    letters = "Adder_dead_letter_shop", "Plus_dead_letter_shop-rehearsal"
    assert shadow.outputs_of(load(OLD, LIVE), renamed, "shop")[-1:] == [
        Output("dead letters of Plus", *letters, False)
    ]


def test_a_sink_whose_name_would_be_too_long_is_refused() -> None:
    text = NEW.replace("more_log", "m" * 240)
    with pytest.raises(ConfigError, match="shorten the sink's name"):
        shadow.shadow_pipeline(load(text, SHADOW), LIVE)


AVRO = """
sinks: {audit: audit_log}
processors:
- {id: A, type: "tests.user_code.echo:Echo", to: [B], serdes: {value: avro}}
- id: B
  type: "tests.user_code.echo:Echo"
  to: [sink, audit]
  serdes: {value: avro, out_value: OUT}
"""


@pytest.mark.parametrize(
    ("out", "subjects"),
    [
        ("avro", ["totals-value", "audit_log-value"]),
        ("{avro: {subject: mine}}", ["mine", "mine"]),
        ("{avro: {register: true}}", ["totals-value", "audit_log-value"]),
        (
            "{avro: {schema: int.avsc, register: true}}",
            [f"rehearsal-of-{each}_shop-rehearsal-value" for each in ("totals", "audit_log")],
        ),
        (
            "{avro: {subject: mine, schema: int.avsc, register: true}}",
            ["rehearsal-of-mine", "rehearsal-of-mine"],
        ),
    ],
)
def test_a_shadow_has_the_schemas_of_the_job_and_registers_none_for_it(
    tmp_path: Path, out: str, subjects: list[str]
) -> None:
    (tmp_path / "int.avsc").write_text('"int"')
    out = out.replace("int.avsc", str(tmp_path / "int.avsc"))
    settings = RegistrySettings("mock://shadow")
    config = replace(SHADOW, modules=("tests.user_code",), schema_registry=settings)
    pipeline = shadow.shadow_pipeline(load(AVRO.replace("OUT", out), config), LIVE)
    first, last = (
        group_of(each, UserCode.of(config), registry=settings)
        for each in replicas(pipeline)
        if each.task.partition == 0
    )
    assert [sink.value_serde.name for sink in first.sinks] == ["avro of A_B_shop-value"]
    assert [source.value_serde.name for source in last.sources] == ["avro of A_B_shop-value"]
    assert [sink.value_serde.name for sink in last.sinks] == [f"avro of {s}" for s in subjects]


def test_topics_that_only_a_function_knows_are_refused() -> None:
    text = "{id: W, type: topology, builder: 'tests.user_code.topologies:by_size', config: "
    config = replace(SHADOW, modules=("tests.user_code.topologies",))
    known = load(f"- {text}{{orders: source, topics: [large, small]}}}}", config)
    assert shadow.sinks_of(shadow.shadow_pipeline(known, LIVE)) == [
        shadow.shadow_sink("large", "shop"),
        shadow.shadow_sink("small", "shop"),
    ]
    unknown = load(f"- {text}{{orders: source}}}}", config)
    with pytest.raises(ConfigError, match="a rehearsal would write to those of the job: name them"):
        shadow.shadow_pipeline(unknown, LIVE)


def test_a_node_group_that_writes_what_it_reads_is_refused() -> None:
    config = replace(SHADOW, modules=("tests.user_code",))
    text = """
- {id: W, type: topology, builder: "tests.user_code.topologies:counter_of_itself",
   config: {lines: source, back: loop, out: sink}}
"""
    with pytest.raises(ConfigError, match="W-Lines reads and writes the topic loop: a rehearsal"):
        shadow.shadow_pipeline(load(text, config), LIVE)


class Brokers:
    """Topics of a cluster, and which of them are deleted."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.left = set(topics)
        self.groups: set[str] = set()

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(self.left.intersection(names), 1)

    def delete_topics(self, names: Collection[str]) -> None:
        self.left -= set(names)

    def delete_groups(self, names: Collection[str]) -> None:
        self.groups |= set(names)


def discarded(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, live: Pipeline, its: Pipeline | None
) -> None:
    def deployment(config: Config, _: Any) -> Deployment:
        made = Deployment(config.topic_names)
        pipeline = live if config is LIVE else its
        if pipeline is not None:
            version = PipelineVersion(1, pipeline, "", 0, "")
            for record in records(config.topic_names, Wish(version=1), version):
                made.take(record)
        return made

    monkeypatch.setattr(shadow, "read_deployment", deployment)
    admin: Any = brokers
    shadow.discard(admin, LIVE, SHADOW)


def test_all_topics_of_a_shadow_are_deleted_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    live, its = load(OLD, LIVE), shadowed()
    others = {spec.name for spec in live.data_topics(1)} | {"rehearsal-of-x_b_shop-rehearsal"}
    own = {spec.name for spec in its.data_topics(1)} - {"orders", "audit_log"}
    own |= {"rehearsal-of-gone_log_shop-rehearsal", "pipeline_topic_shop-rehearsal"}
    own |= {"processors_topic_7_shop-rehearsal"}
    brokers = Brokers(own | others)
    discarded(monkeypatch, brokers, live, its)
    assert brokers.left == others
    assert brokers.groups == {
        f"processors_{name}_shop-rehearsal" for name in ("Adder", "Counter", "Reader")
    }


def test_a_job_of_somebody_with_the_name_of_a_shadow_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = load(OLD, LIVE)
    brokers = Brokers({"totals", "pipeline_topic_shop-rehearsal"})
    with pytest.raises(ConfigError, match='a job "shop-rehearsal" that writes to'):
        discarded(monkeypatch, brokers, live, load(OLD, SHADOW))
    assert len(brokers.left) == 2


def test_records_go_through_as_many_arcs_as_the_longest_way_has() -> None:
    assert hops(load("[{id: A, type: forward, to: [sink]}]", LIVE)) == 0
    assert hops(load(OLD, LIVE)) == 1
    longer = """
- {id: A, type: forward, to: [B, D]}
- {id: B, type: forward, to: [C]}
- {id: C, type: sum, to: [D]}
- {id: D, type: count, to: [sink]}
"""
    assert hops(load(longer, LIVE)) == 3
