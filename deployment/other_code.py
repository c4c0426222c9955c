"""Which processors run other code on the state that they have: nothing here asks Kafka."""

from __future__ import annotations

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import CodeSpec, SparkSpec


def other_code(before: Pipeline, after: Pipeline) -> dict[str, str]:
    """Return which class or function becomes which, by processor.

    Only processors count that go on with state in the same topics. Queries are left out, as their
    state says what it was kept for. A change of user code that keeps its name, or of its `config`,
    cannot be seen here.
    """
    former = {each.id: each for each in before.processors}
    found = {}
    for processor in after.processors:
        had, spec = former.get(processor.id), processor.spec
        if had is None or not isinstance(spec, CodeSpec) or isinstance(spec, SparkSpec):
            continue
        shared = set(before.state_topics(had)).intersection(after.state_topics(processor))
        if shared and isinstance(had.spec, CodeSpec) and had.spec.code != spec.code:
            found[processor.id] = f"{had.spec.code} becomes {spec.code}"
    return found
