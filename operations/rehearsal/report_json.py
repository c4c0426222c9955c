"""The JSON of a report: what `pipeline rehearse --json` prints, and what the console reads.

A reader ignores fields that it does not know: the command may be of a later version.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from kafka_pipeline.common.typed_json import Count
from kafka_pipeline.operations.rehearsal.comparer import Kind, Side


class Verdict(StrEnum):
    """What a rehearsal shows."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOTHING = "nothing compared"


class Shown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what is shown of a rehearsal; its JSON leaves out defaults."""


class ResultJson(Shown, frozen=True, kw_only=True):
    """A result of one version; its value is text, left out without the right to see it."""

    partition: Count
    offset: Count
    timestamp_ms: int
    value: str | None = None


class ExampleJson(Shown, frozen=True, kw_only=True):
    """A difference, with the result of each version that has one, and what differs in them.

    Without the right to see records, `key` is left out, and `differs` names no fields.
    """

    kind: Kind
    key: str | None = None
    differs: tuple[str, ...]
    old: ResultJson | None
    new: ResultJson | None


class OutputJson(Shown, frozen=True, kw_only=True):
    """What was found in an output; `results` counts what was read of each version."""

    results: Mapping[Side, Count]
    equal: Count
    different: Count
    reordered: Count
    only_old: Count
    only_new: Count
    examples: tuple[ExampleJson, ...]


class SpeedJson(Shown, frozen=True, kw_only=True):
    """How a version did: offsets of sources that it read, in how long, and what waits."""

    read: int
    seconds: float
    per_s: float
    lag: Count


class ReportJson(Shown, frozen=True, kw_only=True):
    """See `Report`."""

    verdict: Verdict
    job: str
    old_version: Count
    rested_ms: Count
    compared_until_ms: int | None
    outputs: Mapping[str, OutputJson]
    not_judged: Mapping[Side, Count]
    judged_early: Count
    figures: Mapping[Side, SpeedJson]
    catching_up: SpeedJson | None
    failed: Mapping[Side, tuple[str, ...]]
    notes: tuple[str, ...]
