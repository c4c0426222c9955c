"""Processors that are too long for a command to a TaskManager are refused before they run."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ClassSpec, ForwardSpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import Processors, replicas
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.prepare import check_assignments

NAMES = TopicNames("job", "in", "out")


def pipeline(length: int) -> Pipeline:
    code = ClassSpec(code="shop:" + "X" * length)
    short = PipelineProcessor("Short", ForwardSpec(), ("Long",), (SOURCE,))
    return Pipeline((short, PipelineProcessor("Long", code, (SINK,), ("Short",))), NAMES, 2)


def test_a_processor_that_no_command_has_room_for_is_refused_with_its_name() -> None:
    check_assignments(pipeline(890_000))
    with pytest.raises(ConfigError, match='processor "Long" is too long'):
        check_assignments(pipeline(900_000))


def test_a_command_with_one_that_is_taken_can_be_read() -> None:
    codec = Codec(NAMES, key=ControlKey((b"k" * 32,)))
    tasks = replicas(pipeline(890_000))
    records = codec.encode(Processors(0, "i" * 12, 7, 1, assign=tuple(tasks)), 0)
    (read,) = [found for record in records if (found := codec.decode(record))]
    assert isinstance(read, Processors)
    assert [each.task for each in read.assign] == [each.task for each in tasks]
