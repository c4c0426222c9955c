"""What a restore would do, and what it refuses, without a Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.history import HistorySpec
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import SourceSpec
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    Wish,
    records,
    version_to_json,
)
from kafka_pipeline.operations.savepoints import restore as module
from kafka_pipeline.operations.savepoints import restore_plan
from kafka_pipeline.operations.savepoints.manifest import (
    FORMAT,
    Manifest,
    SavedInput,
    SavedPartition,
    SavedPosition,
    SavedStore,
    Sources,
    write_manifest,
)
from kafka_pipeline.operations.savepoints.record_files import RecordFile
from kafka_pipeline.operations.savepoints.restore import Restore
from kafka_pipeline.operations.savepoints.sharding import with_parallelism
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics
from tests.small_config import SMALL_CONFIG

CHAIN = """
- {id: Forwarder, type: forward, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
CYCLE = """
sources: {back: {topic: loop, feedback: true}}
sinks: {again: loop}
processors:
- {id: Forwarder, type: forward, from: [source, back], to: [Counter]}
- {id: Counter, type: count, to: [again, sink]}
"""
ID = "id-of-in"


class FakeAdmin:
    """A cluster in which the source has 2 partitions with the offsets 10 to 100."""

    def __init__(self, topic_id: str = ID, cluster: str = "c") -> None:
        self.counts = {"in": 2}
        self.oldest, self.end = 10, 100
        self._id, self._cluster = topic_id, cluster

    def check_broker(self) -> str:
        return self._cluster

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.counts[name] for name in names if name in self.counts}

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(names, self._id)

    def oldest_offsets(self, places: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, self.oldest)

    def stable_ends(self, places: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, self.end)

    def offsets_at(self, places: Sequence[Partition], time_ms: int) -> dict[Partition, int | None]:
        return dict.fromkeys(places, 60 if time_ms == 5001 else None)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(SMALL_CONFIG.replace("parallelism: 1", "parallelism: 2") + "job_name: job\n")
    return load_config(path)


def pipeline(config: Config, tmp_path: Path, text: str = CHAIN) -> Pipeline:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    return load_pipeline(path, config)


@pytest.fixture
def folder(config: Config, tmp_path: Path) -> Path:
    """A savepoint: Forwarder at 50 and 60, one record on its way, the counts of 2 tasks."""
    return saved(config, tmp_path, CHAIN)


def saved(config: Config, tmp_path: Path, text: str, *, has_state: bool = True) -> Path:
    made = tmp_path / "saved"
    made.mkdir()
    version = PipelineVersion(1, pipeline(config, tmp_path, text), text, 1, "me@x")
    state, arc = "state_topic_Counter_job", "Forwarder_Counter_job"
    manifest = Manifest(
        format=FORMAT,
        job="job",
        cluster="c",
        made_at_ms=1,
        made_by="me@x",
        stopped_ms=2,
        token="t0",
        version=version_to_json(version),
        stores=(
            SavedStore(
                processor="Counter",
                store="counts",
                topic=state,
                partitions=(written(made, state, 0, b"k"), written(made, state, 1, b"l")),
            ),
        )
        * has_state,
        inputs=(
            SavedInput(
                processor="Forwarder",
                name="source",
                topic="in",
                topic_id=ID,
                is_arc=False,
                positions=(position(0, 50, 5000), position(1, 60)),
            ),
            SavedInput(
                processor="Counter",
                name="Forwarder",
                topic=arc,
                topic_id="x",
                is_arc=True,
                positions=(position(0, 7, 4000),),
                left=(written(made, arc, 1, b"m"),),
            ),
        ),
    )
    write_manifest(made, manifest, text)
    return made


def written(folder: Path, topic: str, partition: int, key: bytes) -> SavedPartition:
    file = RecordFile(folder, topic, partition)
    file.write(RecordBatch(topic, partition, [key], [b"1"], [1000], [0]))
    return file.finish()


def position(partition: int, offset: int, time_ms: int = -1) -> SavedPosition:
    at = Committed(offset, time_ms)
    return SavedPosition(partition=partition, offset=offset, metadata=at.metadata)


class Job:
    """What the pipeline topic says, instead of a Kafka."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
        self.deployment = Deployment(config.topic_names)
        monkeypatch.setattr(module, "read_deployment", lambda *_: self.deployment)

    def wishes(self, wish: Wish, version: PipelineVersion) -> None:
        for record in records(self.deployment.names, wish, version):
            self.deployment.take(record)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, config: Config) -> Job:
    return Job(monkeypatch, config)


def planned(
    config: Config,
    folder: Path,
    target: Pipeline,
    admin: FakeAdmin | None = None,
    sources: Sources | None = None,
    *,
    in_place: bool = False,
    renewed: Sequence[str] = (),
) -> Restore:
    proposal = Proposal(target, CHAIN)
    cluster = cast(Admin, admin or FakeAdmin())
    return Restore(config, cluster, folder, proposal, sources, in_place=in_place, renewed=renewed)


def offsets(found: Restore) -> list[int]:
    return [begin.offset for begin in found.plan.begins]


def test_same_job_gets_all_of_it(config: Config, folder: Path, tmp_path: Path, job: Job) -> None:
    found = planned(config, folder, pipeline(config, tmp_path))
    assert [(each.topic, each.count) for each in found.plan.stores] == [
        ("state_topic_Counter_job", 2)
    ]
    assert [(each.topic, each.count) for each in found.plan.arcs] == [("Forwarder_Counter_job", 2)]
    assert offsets(found) == [50, 60]
    assert (found.plan.losses, found.plan.empty) == ([], [])
    found.check_files()


def test_only_processors_with_new_state_are_touched_in_place(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    target = pipeline(config, tmp_path)
    found = planned(config, folder, target, in_place=True, renewed=["Counter"])
    assert [each.topic for each in found.plan.stores] == ["state_topic_Counter_job"]
    assert [each.topic for each in found.plan.arcs] == ["Forwarder_Counter_job"]
    assert found.plan.moved == {"Counter"}
    same = planned(config, folder, target, in_place=True)
    assert (same.plan.stores, same.plan.arcs, same.plan.moved) == ([], [], set())


def test_what_may_be_in_a_table_is_not_put_into_another_topic(
    config: Config, tmp_path: Path, job: Job
) -> None:
    """The sink was killed after it had written rows, and before it committed their offsets."""
    path = tmp_path / "config.yaml"
    path.write_text(path.read_text() + "tables: {write_paths: [lake]}\n")
    allowed = load_config(path)
    to_table = CHAIN.replace(
        "type: count, to: [sink]", "type: table, format: delta, path: lake/t, schema: n INT"
    )
    folder = saved(allowed, tmp_path, to_table, has_state=False)
    same = pipeline(allowed, tmp_path, to_table)
    planned(allowed, folder, same, in_place=True).check_files()
    (loss,) = planned(allowed, folder, same).plan.losses
    assert loss.endswith(
        "there and are written once more: Forwarder_Counter_job, which it reads, is created again"
    )
    forked = replace(allowed, job_name="fork")
    assert planned(forked, folder, pipeline(forked, tmp_path, to_table)).plan.losses == []
    other = to_table.replace("id: Forwarder", "id: First, was: Forwarder")
    found = planned(allowed, folder, pipeline(allowed, tmp_path, other), in_place=True)
    with pytest.raises(ConfigError, match="records wait in Forwarder_Counter_job for Counter, and"):
        found.check_files()


def test_results_that_the_job_reads_itself_would_come_twice(
    config: Config, tmp_path: Path, job: Job
) -> None:
    text = f"""
sources: {{begin: elsewhere}}
sinks: {{middle: in}}
processors:
- {{id: Maker, type: forward, from: [begin], to: [middle]}}{CHAIN}"""
    folder, target = saved(config, tmp_path, text), pipeline(config, tmp_path, text)
    (loss,) = planned(config, folder, target).plan.losses
    assert loss.startswith('the job writes in itself, and "Forwarder" continues 90 offsets before')
    renamed = pipeline(config, tmp_path, text.replace("id: Forwarder", "id: F, was: Forwarder"))
    assert planned(config, folder, renamed, in_place=True).plan.losses == []


def test_damaged_file_is_found_before_anything_is_done(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    found = planned(config, folder, pipeline(config, tmp_path))
    path = folder / "state_topic_Counter_job-1.arrow"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ConfigError, match=r"state_topic_Counter_job-1\.arrow is damaged"):
        found.check_files()


def test_what_another_pipeline_does_not_have_needs_consent(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    other = "- {id: Other, type: count, to: [sink]}\n"
    found = planned(config, folder, pipeline(config, tmp_path, other))
    assert found.plan.empty == ["Other.counts"]
    assert found.plan.losses == [
        'the state of the store "counts" of "Counter" is left out: the pipeline has no such store',
        '"Counter" does not read Forwarder_Counter_job in this pipeline, so what waits in it is '
        "left out: 1 record",
    ]


def test_records_that_were_deleted_since_need_consent(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    admin = FakeAdmin()
    admin.oldest = 55
    found = planned(config, folder, pipeline(config, tmp_path), admin)
    assert offsets(found) == [55, 60]
    assert found.plan.losses == ["5 offsets that followed in in[0] were deleted since"]


def test_records_that_a_table_has_are_not_lost(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    admin = FakeAdmin()
    admin.oldest = 55
    target = pipeline(config, tmp_path)
    history = HistorySpec(format="parquet", written_by="job/Orders", record_columns={})
    forwarder, counter = target.processors
    forwarder = replace(forwarder, sources={"source": SourceSpec(history=history)})
    found = planned(config, folder, replace(target, processors=(forwarder, counter)), admin)
    assert offsets(found) == [50, 60]
    assert found.plan.losses == []


def test_source_that_ends_before_the_savepoint_is_refused(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    admin = FakeAdmin()
    admin.end = 55
    with pytest.raises(ConfigError, match=r"in\[1\] ends at offset 55, before offset 60"):
        planned(config, folder, pipeline(config, tmp_path), admin)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (Sources.OFFSETS, [50, 60]),
        (Sources.EARLIEST, [10, 10]),
        (Sources.LATEST, [100, 100]),
        # Of the second partition, no time is known.
        (Sources.TIME, [60, 10]),
    ],
)
def test_another_topic_needs_to_know_where_to_begin(
    config: Config,
    folder: Path,
    tmp_path: Path,
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    sources: Sources,
    expected: list[int],
) -> None:
    target, admin, every = pipeline(config, tmp_path), FakeAdmin("another"), FakeAdmin("another")
    monkeypatch.setattr(restore_plan, "EveryBroker", lambda *_: every)
    with pytest.raises(ConfigError, match="say where to begin in it by --sources"):
        planned(config, folder, target, admin)
    if sources in (Sources.TIME, Sources.LATEST):
        # A leader that is cut off from the other brokers does not know all of the topic.
        admin.end = 20
    assert offsets(planned(config, folder, target, admin, sources)) == expected


def test_a_time_may_come_after_the_start_of_an_open_transaction(
    config: Config, folder: Path, tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, admin = pipeline(config, tmp_path), FakeAdmin("another")
    monkeypatch.setattr(restore_plan, "EveryBroker", lambda *_: admin)
    admin.end = 55
    assert offsets(planned(config, folder, target, admin, Sources.TIME)) == [60, 10]


def test_source_with_other_partitions_is_refused_for_state_that_reads_it(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    admin = FakeAdmin()
    admin.counts["in"] = 1
    with pytest.raises(ConfigError, match="in has 1 partition, and the savepoint's topic had more"):
        planned(config, folder, pipeline(config, tmp_path), admin)


def test_records_left_in_an_arc_go_with_their_keys_to_other_partitions(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    found = planned(config, folder, with_parallelism(pipeline(config, tmp_path), 3))
    (arc,) = found.plan.arcs
    assert (arc.topic, arc.count, arc.spread) == ("Forwarder_Counter_job", 3, True)


def test_what_former_versions_have_left_in_arcs_is_not_read_again(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    """A processor was put between the two, and taken away; then comes the restore."""
    between = """
- {id: Forwarder, type: forward, to: [Relay]}
- {id: Relay, type: forward, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
    target = pipeline(config, tmp_path)
    relayed = pipeline(config, tmp_path, between)
    for number, ran in enumerate((relayed, target), 1):
        version = PipelineVersion(number, ran, CHAIN, 1, "me@x")
        job.wishes(Wish(version=number), version)
    admin = FakeAdmin()
    admin.counts |= {"Forwarder_Relay_job": 2, "Relay_Counter_job": 2, "Forwarder_Counter_job": 2}
    found = planned(config, folder, target, admin)
    assert found.arcs_of_before() == {
        ("Relay_Counter_job", 0): "Counter",
        ("Relay_Counter_job", 1): "Counter",
    }


@pytest.mark.parametrize(
    ("wish", "problem"),
    [
        (Wish(version=1, next=1), "version 1 of the pipeline is to come"),
        (
            Wish(version=1, stop=StopOrder(purpose="savepoint", token="t9", by="you@y")),
            "you@y is making a savepoint",
        ),
    ],
)
def test_job_that_changes_is_refused(
    config: Config, folder: Path, tmp_path: Path, job: Job, wish: Wish, problem: str
) -> None:
    target = pipeline(config, tmp_path)
    job.wishes(wish, PipelineVersion(1, target, CHAIN, 1, "me@x"))
    with pytest.raises(ConfigError, match=problem):
        planned(config, folder, target)


def test_restore_that_was_interrupted_may_be_followed_by_another(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    target = pipeline(config, tmp_path)
    stop = StopOrder(purpose="restore", token="t9", by="you@y")
    job.wishes(Wish(version=1, stop=stop), PipelineVersion(1, target, CHAIN, 1, "me@x"))
    found = planned(config, folder, target)
    found.require_new_job()
    assert offsets(found) == [50, 60]


def test_fork_needs_a_job_that_is_new_and_other_sinks(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    target = pipeline(config, tmp_path)
    found = planned(config, folder, target)
    found.require_new_job()
    with pytest.raises(ConfigError, match="out would get the results of both jobs"):
        found.require_other_sinks()
    planned(config, folder, target, FakeAdmin(cluster="other")).require_other_sinks()
    job.wishes(Wish(version=1), PipelineVersion(1, target, CHAIN, 1, "me@x"))
    with pytest.raises(ConfigError, match="this job runs version 1 of a pipeline"):
        planned(config, folder, target).require_new_job()


def test_fork_needs_another_topic_by_which_records_come_back(
    config: Config, tmp_path: Path, job: Job
) -> None:
    folder = saved(config, tmp_path, CYCLE)
    target = pipeline(
        config,
        tmp_path,
        CYCLE.replace("sink]", "other]").replace("loop}\nproc", "loop, other: elsewhere}\nproc"),
    )
    admin = FakeAdmin()
    admin.counts["loop"] = 2
    with pytest.raises(ConfigError, match=r"^loop would get the results of both jobs"):
        planned(config, folder, target, admin).require_other_sinks()


def test_fork_needs_names_for_the_topics_that_a_function_chooses(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    loaded = pipeline(
        config,
        tmp_path,
        f"sinks: {{other: elsewhere}}\nprocessors:{CHAIN.replace('sink]', 'other]')}",
    )
    planned(config, folder, loaded).require_other_sinks()
    first, *others = loaded.processors
    target = replace(loaded, processors=(replace(first, chooses_topics=True), *others))
    with pytest.raises(ConfigError, match="both jobs may write to the same ones: name them by"):
        planned(config, folder, target).require_other_sinks()
    planned(config, folder, target, FakeAdmin(cluster="other")).require_other_sinks()


@pytest.mark.parametrize("cluster", ["c", "other"])
def test_fork_needs_another_table(tmp_path: Path, job: Job, config: Config, cluster: str) -> None:
    text = (
        "\n- {id: Table, type: table, format: delta, path: lake/%s, schema: n INT, from: [source]}"
    )
    path = tmp_path / "config.yaml"
    path.write_text(path.read_text() + "tables: {write_paths: [lake]}\n")
    allowed = load_config(path)
    both, sinks = CHAIN + text, "sinks: {other: elsewhere}\nprocessors:"
    folder = saved(allowed, tmp_path, both % "a")
    fork = sinks + both.replace("sink]", "other]")
    for name in ("a", "b"):
        found = planned(
            allowed, folder, pipeline(allowed, tmp_path, fork % name), FakeAdmin(cluster=cluster)
        )
        if name == "b":
            found.require_other_sinks()
            continue
        with pytest.raises(
            ConfigError, match=r"^the table lake/a would get the results of both jobs"
        ):
            found.require_other_sinks()


def test_restored_job_does_not_read_topics_of_its_pattern_that_are_gone(
    config: Config, folder: Path, tmp_path: Path
) -> None:
    text = "- {id: W, type: topology, builder: 'tests.user_code.lookups:gather', config: {%s}}"
    allowed = replace(config, modules=("tests.user_code.lookups",))
    loaded = pipeline(allowed, tmp_path, text % "pattern: 'day_.*', gathered: out")
    ran = PipelineVersion(1, with_matching_topics(loaded, ["day_1", "day_2"]), text, 1, "me@x")
    admin: Any = FakeAdmin()
    admin.counts = {"day_2": 3, "day_3": 1, "out": 2}
    admin.topics = lambda: admin.counts
    manifest: Any = SimpleNamespace(pipeline_version=lambda: ran)
    found = module.saved_pipeline(admin, folder, manifest).pipeline
    (reader,) = found.processors
    assert (reader.from_, found.task_count(reader)) == (("day_2",), 3)


RENAMED = """
- {id: Forwarder, type: forward, to: [Total]}
- {id: Total, was: Counter, type: count, to: [sink]}
"""


def test_renamed_processor_gets_state_offsets_and_what_waits(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    found = planned(config, folder, pipeline(config, tmp_path, RENAMED)).plan
    assert [each.topic for each in found.stores] == ["state_topic_Total_job"]
    assert [(each.reader, each.topic) for each in found.arcs] == [("Total", "Forwarder_Total_job")]
    assert (found.losses, found.empty, found.moved) == ([], [], {"Forwarder", "Total"})


@pytest.mark.parametrize("in_place", [False, True])
def test_a_source_goes_on_under_another_name(
    config: Config, folder: Path, tmp_path: Path, job: Job, in_place: bool
) -> None:
    """Also if another processor gets another id at the same time."""
    text = RENAMED.replace("type: forward,", "type: forward, from: [orders],")
    text = f"sources: {{orders: in}}\nprocessors:{text}"
    found = planned(config, folder, pipeline(config, tmp_path, text), in_place=in_place)
    assert found.plan.moved == ({"Total"} if in_place else {"Forwarder", "Total"})
    assert offsets(found) == ([] if in_place else [50, 60])


def test_in_place_only_what_changes_is_touched(
    config: Config, folder: Path, tmp_path: Path, job: Job
) -> None:
    same = planned(config, folder, pipeline(config, tmp_path), in_place=True).plan
    assert (same.stores, same.arcs, same.begins, same.moved) == ([], [], [], set())
    other = """
- {id: First, was: Forwarder, type: forward, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
    found = planned(config, folder, pipeline(config, tmp_path, other), in_place=True).plan
    # The arc has the name of its writer. The counts stay where they are.
    assert [each.topic for each in found.arcs] == ["First_Counter_job"]
    assert (found.stores, found.losses, found.moved) == ([], [], {"First", "Counter"})
    assert [each.offset for each in found.begins] == [50, 60]
