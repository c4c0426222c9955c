"""Publishes a rehearsal from its first step to its last, for the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.cluster.code_versions import code_changes
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, PipelineError, shorten
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.deploy import who
from kafka_pipeline.operations.rehearsal.changes import shown_versions
from kafka_pipeline.operations.rehearsal.comparer import Side
from kafka_pipeline.operations.rehearsal.comparison import Comparison
from kafka_pipeline.operations.rehearsal.publication import (
    Phase,
    Publication,
    Publisher,
    figures_of,
)
from kafka_pipeline.operations.rehearsal.report import Report
from kafka_pipeline.operations.savepoints.manifest import Manifest

_LONGEST_REASON = 1000
_ENDED_EARLY = "it was ended before anything was compared"


class Progress:
    """A rehearsal of a version that is published; for one thread.

    `live` and `new` both have the topics of the job.
    """

    def __init__(self, config: Config, publisher: Publisher, live: Pipeline, new: Pipeline) -> None:
        self._config = config
        self._publisher = publisher
        self._live = live
        self._new = new

    def starts(self, manifest: Manifest) -> None:
        """Publish that the shadow, which is made of a savepoint, starts."""
        self._live = manifest.pipeline_version().pipeline
        versions = shown_versions(self._live, self._new)
        self._publisher.update(phase=Phase.STARTING, versions=versions)

    def compares(self, until_ms: int) -> None:
        """Publish that results are compared until then, by the clock of this host."""
        self._publisher.update(phase=Phase.COMPARING, until_ms=until_ms)

    def look(self, comparison: Comparison, manifest: Manifest) -> None:
        """Publish what was found so far, if it is time to. Raises as `Comparison.report`."""
        if self._publisher.is_due:
            self._publish(comparison, self._report(comparison, manifest), Phase.COMPARING)

    def end(self, comparison: Comparison, manifest: Manifest) -> Report:
        """Publish what was found; return it. Raises as `Comparison.report`."""
        report = self._report(comparison, manifest)
        self._publish(comparison, report, Phase.ENDED)
        return report

    def _report(self, comparison: Comparison, manifest: Manifest) -> Report:
        number = manifest.pipeline_version().number
        return comparison.report(self._config.job_name or "", number, manifest.stopped_ms)

    def _publish(self, comparison: Comparison, report: Report, phase: Phase) -> None:
        statuses = {side: comparison.status(side) for side in Side}
        of_shadow = [*statuses[Side.NEW].code.values()]
        code = code_changes(of_shadow[0] if of_shadow else {}, statuses[Side.OLD].code, self._new)
        other_code = {id_ for change in code for id_ in change.processors}
        self._publisher.update(
            phase=phase,
            ended_at_ms=wall_clock_ms() if phase is Phase.ENDED else None,
            versions=shown_versions(self._live, self._new, other_code),
            figures={side: figures_of(status) for side, status in statuses.items()},
            report=report.shown(with_values=self._config.console_records),
        )


@contextmanager
def published(config: Config, admin: Admin, live: Pipeline, new: Pipeline) -> Iterator[Progress]:
    """Publish a rehearsal of a job, also why it failed if it does.

    Raises `PipelineError` if the topic for it cannot be made.
    """
    first = Publication(
        phase=Phase.SAVING,
        by=who(),
        began_at_ms=wall_clock_ms(),
        versions=shown_versions(live, new),
    )
    with closing(Publisher(config, admin, first)) as publisher:
        reason = _ENDED_EARLY
        try:
            yield Progress(config, publisher, live, new)
        except (PipelineError, EngineError) as error:
            reason = error.shown
            raise
        finally:
            publisher.fail_unless_ended(shorten(reason, _LONGEST_REASON))
