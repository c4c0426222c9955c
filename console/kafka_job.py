"""The job in Kafka, for the console; it does the same as the `pipeline` command."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, shorten
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.console.job import Ask, Deal, RecordQuery
from kafka_pipeline.deployment import wishes
from kafka_pipeline.deployment.desired_state import require_no_stop
from kafka_pipeline.deployment.job import choose, connected, read_deployment
from kafka_pipeline.deployment.wishes import WishChange
from kafka_pipeline.operations.avro_text import letter_with_text, lines_with_text
from kafka_pipeline.operations.dead_letters import DeadLetter, LetterId, Wanted, ends
from kafka_pipeline.operations.latest_letters import LatestLetters, LetterList
from kafka_pipeline.operations.record_lines import RecordLines, text_of
from kafka_pipeline.operations.redrive import DeadLetterTopics
from kafka_pipeline.operations.rehearsal.publication import Published, read_publication
from kafka_pipeline.operations.topic_records import TopicRecords

MOST_OFFSETS = 50_000
"""The most offsets of dead letters that one action may read into the JobManager's memory."""

_LONGEST_TEXT = 20_000
_Record = tuple[RecordBatch, int]

_CHANGES: Mapping[Ask, WishChange] = {
    "pause": wishes.paused,
    "resume": wishes.resumed,
    "restart": wishes.restarted,
}


class KafkaJob:
    """See `Job`. Connects with each call, and caches only the newest dead letters."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._latest = LatestLetters(config)

    def ask(self, what: Ask, processors: Sequence[str], *, dry_run: bool) -> dict[str, Any]:
        admin = connected(self._config)
        deployment = read_deployment(self._config, admin)
        # "Resume all" would give a savepoint up: only the command does that, and says so.
        require_no_stop(deployment.wish)
        chosen = choose(deployment, processors)
        found: dict[str, Any] = {"processors": chosen.ids, "tasks": chosen.task_count}
        if dry_run:
            return found
        is_all = what == "resume" and not processors
        changed = wishes.all_resumed if is_all else _CHANGES[what]
        return {**found, "version": wishes.ask(self._config, admin, chosen, changed)}

    def deal(self, how: Deal, wanted: Wanted, *, dry_run: bool) -> dict[str, Any]:
        """See `Job`. Raises `ConfigError` also if there are too many dead letters."""
        topics = DeadLetterTopics(self._config)
        _require_few(topics, wanted)
        if dry_run:
            found = topics.find(wanted)
            by_processor = Counter(letter.id.processor for letter in found)
            before: dict[str, dict[str, int]] = {}
            for (processor, partition), offset in ends(found).items():
                before.setdefault(processor, {})[str(partition)] = offset
            return {"count": len(found), "by_processor": by_processor, "before": before}
        carry_out = topics.redrive if how == "redrive" else topics.purge
        return {"count": carry_out(wanted)}

    def letters(self) -> LetterList:
        return self._latest.read()

    def letter(self, id_: LetterId) -> DeadLetter:
        """See `Job`. What is Avro is shown as JSON."""
        found = DeadLetterTopics(self._config).read(id_)
        if self._config.schema_registry is None:
            return found
        current = read_deployment(self._config, connected(self._config)).current
        if current is None:
            return found
        return letter_with_text(self._config, current.pipeline, found)

    def rehearsal(self) -> Published | None:
        return read_publication(self._config, connected(self._config))

    def records(self, query: RecordQuery) -> dict[str, Any]:
        """See `Job`. Long keys and values are cut off.

        What is Avro in the pipeline is shown as JSON, in place of a `string`.
        """
        admin = connected(self._config)
        current = read_deployment(self._config, admin).current
        if current is None or query.topic not in current.pipeline.all_topics:
            raise ConfigError(f'the job has no topic "{query.topic}"')
        lines = RecordLines.by_names(query.topic, query.key, query.value)
        lines = lines_with_text(self._config, current.pipeline, lines)
        topic = TopicRecords(self._config, query.topic, lines)
        if query.newest:
            every = topic.read(query.start, query.partitions, most=None)
            found = _newest(every, query.limit)
        else:
            found = list(topic.read(query.start, query.partitions, most=query.limit))
        return {"records": [_shortened(topic.lines.to_json(*record)) for record in found]}


def _newest(records: Iterable[_Record], limit: int) -> list[_Record]:
    """Return the records with the latest times among the last ones of each partition."""
    last: dict[int, deque[_Record]] = {}
    for batch, index in records:
        last.setdefault(batch.partition, deque(maxlen=limit)).append((batch, index))
    every = [record for kept in last.values() for record in kept]
    every.sort(key=lambda record: record[0].timestamps[record[1]])
    return every[-limit:]


def _require_few(topics: DeadLetterTopics, wanted: Wanted) -> None:
    bounds, places = topics.bounds(), topics.places()
    count = sum(
        end - oldest
        for place, (oldest, end) in bounds.items()
        if not wanted.processors or places[place] in wanted.processors
    )
    if count > MOST_OFFSETS:
        raise ConfigError(
            f"there are up to {count:,} dead letters to look through, more than the "
            f"{MOST_OFFSETS:,} that the JobManager reads: choose one processor, or use `pipeline "
            "dlq`"
        )


def _shortened(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose keys and values are text of a limited length, or null.

    Numbers are text too, since browsers would round large ones. Half of a surrogate pair, which
    JSON may have, is escaped: it has no UTF-8.
    """
    for name in ("key", "value"):
        if record[name] is not None:
            text = shorten(text_of(record[name]), _LONGEST_TEXT)
            record[name] = text.encode(errors="backslashreplace").decode()
    return record
