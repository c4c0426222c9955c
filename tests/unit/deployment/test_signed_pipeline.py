"""The pipeline topic with a key: it is read from its first record on, so copies matter there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.messages import ControlRecord, MalformedMessageError
from kafka_pipeline.common.protocol.signing import BadSignatureError, signed
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records

NAMES = TopicNames("job", "in", "out")
KEY = ControlKey((b"k" * 32,))
FORWARDER = PipelineProcessor("P", ForwardSpec(), (SINK,), (SOURCE,))


def version(number: int, parallelism: int = 1) -> PipelineVersion:
    return PipelineVersion(number, Pipeline((FORWARDER,), NAMES, parallelism), "", 0, "ada")


def take(deployment: Deployment, written: list[ControlRecord]) -> list[str]:
    """Take records; return why some do not count."""
    why = []
    for record in written:
        try:
            deployment.take(record)
        except MalformedMessageError as error:
            why.append(str(error))
    return why


def written(deployment: Deployment, wish: Wish, *versions: PipelineVersion) -> list[ControlRecord]:
    made = deployment.records(wish, *versions)
    assert take(deployment, made) == []
    return made


@pytest.fixture
def writer() -> Deployment:
    return Deployment(NAMES, KEY)


def test_what_a_writer_with_the_key_wrote_is_read_by_others_with_and_without_it(
    writer: Deployment,
) -> None:
    topic = [
        *written(writer, Wish(version=1), version(1)),
        *written(writer, Wish(version=1, paused=("P",))),
    ]
    for key in (KEY, None):
        reader = Deployment(NAMES, key)
        assert take(reader, topic) == []
        assert reader.wish == Wish(version=1, paused=("P",))
        assert reader.version(1) == version(1)


def test_a_copy_of_an_older_wish_does_not_take_the_job_back(writer: Deployment) -> None:
    older = written(writer, Wish(version=1), version(1))
    newer = written(writer, Wish(version=2), version(2))
    reader = Deployment(NAMES, KEY)
    why = take(reader, [*older, *newer, *older, *newer])
    assert why == ["pipeline_topic_job: the record repeats a change that was made before"] * 4
    assert reader.wish == Wish(version=2)


def test_a_copy_of_a_version_does_not_replace_one_with_the_same_number(writer: Deployment) -> None:
    (former, _) = written(writer, Wish(version=1), version(1))
    topic = written(writer, Wish(version=1), version(1, parallelism=3))
    reader = Deployment(NAMES, KEY)
    assert len(take(reader, [*topic, former])) == 1
    assert reader.version(1).pipeline.parallelism == 3


def test_wishes_in_another_order_leave_the_newest(writer: Deployment) -> None:
    first = written(writer, Wish(version=1), version(1))
    second = written(writer, Wish(version=1, drains=True))
    reader = Deployment(NAMES, KEY)
    assert len(take(reader, [*second, *first])) == 2
    assert reader.wish == Wish(version=1, drains=True)


@pytest.mark.parametrize("key", [None, ControlKey((b"o" * 32,))], ids=["no key", "another key"])
def test_a_forged_wish_does_not_count(writer: Deployment, key: ControlKey | None) -> None:
    topic = written(writer, Wish(version=1), version(1))
    forged = Deployment(NAMES, key).records(Wish(version=1, drains=True))
    forged.append(replace(forged[0], headers=()))
    forged.append(replace(forged[0], value=b""))
    forged.append(replace(forged[0], headers=(("format", b"99"),)))
    reader = Deployment(NAMES, KEY)
    assert len(take(reader, [*topic, *forged])) == len(forged)
    assert reader.wish == Wish(version=1)


def test_a_wish_that_is_signed_but_not_numbered_does_not_count(writer: Deployment) -> None:

    (plain,) = records(NAMES, Wish(version=1))
    for number in (None, b"", b"0", b"-1", b"+1", b"01", b"9" * 40):
        headers = plain.headers if number is None else (*plain.headers, ("change", number))
        assert take(writer, [signed(replace(plain, headers=headers), KEY)])
    assert writer.wish is None


def test_a_wish_without_a_signature_is_noticed(writer: Deployment) -> None:
    with pytest.raises(BadSignatureError, match="not signed"):
        writer.take(records(NAMES, Wish(version=1))[0])
    assert writer.has_unsigned_wish


def test_signing_again_with_another_key_keeps_everything(writer: Deployment) -> None:
    topic = [
        *written(writer, Wish(version=1), version(1)),
        *written(writer, Wish(version=2, paused=("P",)), version(2)),
    ]
    new = ControlKey((b"n" * 32, *KEY.accepted))
    signer = Deployment(NAMES, new)
    assert take(signer, topic) == []
    assert signer.wish is not None
    topic += written(signer, signer.wish, *map(signer.version, signer.numbers))
    reader = Deployment(NAMES, ControlKey(new.accepted[:1]))
    take(reader, topic)
    assert (reader.wish, reader.numbers) == (Wish(version=2, paused=("P",)), [1, 2])
    assert reader.version(1) == version(1)
