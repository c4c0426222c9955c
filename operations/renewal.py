"""Replaces topics by empty ones of the same names."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.topics import TopicSpec

_TIMEOUT_S = 60
_LOOK_S = 0.2


def renew_topics(
    admin: Admin, names: Collection[str], specs: Sequence[TopicSpec], command: str
) -> None:
    """Delete the topics with these names, and make all of `specs` that are missing then.

    Stores and consumers tell the new topics from the old ones by their ids. It can be repeated.
    Raises `UnavailableError` if Kafka does not do it in time; `command` names what to repeat.
    """
    existing = [*admin.partition_counts(names)]
    before = admin.topic_ids(existing)
    admin.delete_topics(existing)
    if left_after_wait(admin, names):
        raise UnavailableError(f"Kafka does not delete the old topics: repeat the {command}")
    admin.ensure_topics(specs)
    if any(before.get(name) == id_ for name, id_ in admin.topic_ids([*names]).items()):
        raise UnavailableError(f"Kafka still has the old topics: repeat the {command}")


def left_after_wait(admin: Admin, topics: Collection[str]) -> list[str]:
    """Wait until brokers have deleted topics; return those that are still there after a minute.

    Only topics that are gone leave their names to others.
    """
    deadline_s = time.monotonic() + _TIMEOUT_S
    while (left := admin.partition_counts(topics)) and time.monotonic() <= deadline_s:
        time.sleep(_LOOK_S)
    return [*left]
