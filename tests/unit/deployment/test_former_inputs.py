"""What processors have read in other versions of the pipeline."""

from __future__ import annotations

from kafka_pipeline.common.protocol.messages import ControlRecord, replicas
from kafka_pipeline.deployment.desired_state import Wish
from tests.unit.deployment.test_desired_state import (
    FORMAT_1,
    JOB,
    NAMES,
    deployment,
    version,
    written,
)
from tests.unit.streams.pipeline.loading import load


def test_former_inputs_are_those_of_all_other_versions() -> None:
    """A task that has state, but no offset of its inputs, may have read others before."""
    one = load("[{id: F, to: [C], type: forward}, {id: C, to: [sink], type: count}]", JOB)
    two = load("[{id: G, to: [C], type: forward}, {id: C, to: [sink], type: count}]", JOB)
    unreadable = ControlRecord(NAMES.pipeline, b"version-3", b"{}", FORMAT_1)
    first, second = version(1, one), version(2, two)
    found = deployment([*written(Wish(version=2), first, second), unreadable])
    arc = NAMES.arc("F", "C")
    assert found.former_inputs(2) == {"F": {NAMES.source}, "C": {arc}}
    former = found.former_inputs(2)
    units = {each.name: each for each in replicas(two, former_inputs=former)}
    assert units["C"].former_inputs == (arc,)
    assert units["G"].former_inputs == ()
    again = {each.name: each for each in replicas(one, former_inputs=found.former_inputs(1))}
    assert again["F"].former_inputs == ()  # it has no state
    assert again["C"].former_inputs == (NAMES.arc("G", "C"),)
