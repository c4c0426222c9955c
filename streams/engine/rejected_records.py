"""Rejected records: skipped, written as dead letters, or the end of the task (`on_error`)."""

from __future__ import annotations

from collections.abc import Callable

from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.dead_letters import dead_letter, error_name
from kafka_pipeline.streams.engine.figures import TaskFigures
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.recent import MinuteLimit
from kafka_pipeline.streams.engine.runtime import GroupRuntime, Rejection
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.engine.user_errors import Explanation
from kafka_pipeline.streams.processor import RecordRejectedError


class ProcessingFailedError(Exception):
    """A record with `on_error: fail`, or a punctuation, failed with `error`.

    Everything that came before is done, and the failure leaves no trace. The caller commits that
    and stops the task.
    """

    def __init__(self, reason: str, error: Exception) -> None:
        super().__init__(reason)
        self.error = error


class RejectedRecords:
    """Skips rejected records of a task, puts them aside as dead letters, or ends the task."""

    def __init__(
        self,
        runtime: GroupRuntime,
        settings: GroupSettings,
        environment: TaskEnvironment,
        on_user_error: Callable[[Exception], None],
    ) -> None:
        """Dead letters become outputs of `runtime`; errors of user code go to `on_user_error`."""
        self._runtime = runtime
        self._settings = settings
        self._output_topics = environment.output_topics
        self._clock_ms = environment.clock_ms
        self._with_values = environment.log_record_values
        self._on_user_error = on_user_error
        most = settings.max_dead_letters_per_minute
        self._letter_limit = None if most is None else MinuteLimit(most)

    def handle(
        self, batch: RecordBatch, rejection: Rejection, figures: TaskFigures, now_ms: int
    ) -> None:
        """Handle a rejected record as `on_error` says; count it in `figures`.

        `now_ms` comes from a clock that only goes forward. Raises `ProcessingFailedError`.
        """
        index, error = rejection.index, rejection.error
        place = f"record {batch.topic}[{batch.partition}]@{batch.offsets[index]}"
        settings = self._settings
        source = self._runtime.nodes.source(batch.topic)
        explained = Explanation(error, source, with_values=self._with_values)
        raised = error
        if error is batch.cause and isinstance(error.__cause__, Exception):
            raised = error.__cause__  # what an extractor raised
        # A record that a processor rejects on purpose is not an error in its code.
        if not isinstance(raised, RecordRejectedError):
            self._on_user_error(raised)
        if settings.on_error is OnError.FAIL:
            raise ProcessingFailedError(f"{place}: {explained.reason}", error) from error
        if explained.is_mistake and not settings.on_error.takes_all:
            raise ProcessingFailedError(
                f"{place}: {explained.reason}; {type(error).__name__} is a mistake in the code, so "
                f"on_error: {settings.on_error} does not apply: mend the code, or write "
                f"on_error: {{{settings.on_error}: all}}",
                error,
            ) from error
        if not settings.on_error.writes_dead_letters:
            figures.skipped += 1
            figures.reject(error_name(error))
            return
        topic = settings.dead_letter_topic
        assert topic is not None, "dead_letter comes with a topic"
        letter = dead_letter(
            batch, index, explained, source.name, topic, self._output_topics, self._clock_ms()
        )
        if isinstance(letter, str):
            raise ProcessingFailedError(f"{place}: {explained.reason}; {letter}", error) from error
        limit = self._letter_limit
        if limit is not None and not limit.admits(now_ms):
            raise ProcessingFailedError(
                f"{place}: {explained.reason}; this task has written {limit.most} dead letters "
                "within a minute, and max_dead_letters_per_minute allows no more",
                error,
            ) from error
        self._runtime.outputs.append(letter)
        figures.dead_letters += 1
        figures.reject(error_name(error))
