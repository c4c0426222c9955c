"""Makes the savepoint of a rehearsal, and notes where the outputs of the job end at that moment.

A process of its own: if the command is killed, this one goes on, and lets the job go on. Run it as
`python -m kafka_pipeline.admin.rehearsal.saving CONFIG FOLDER ENDS`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kafka_pipeline.admin.precautions import REST_TIMEOUT_S
from kafka_pipeline.admin.signals import Interrupted, Signals
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.typed_json import Count, Name, from_json, parse
from kafka_pipeline.deployment.job import connected
from kafka_pipeline.operations.rehearsal.shadow import written_topics
from kafka_pipeline.operations.savepoints.create import Creation


@run_command
def save(config: Path, folder: Path, ends: Path) -> None:
    """Make a savepoint in `folder`, and write the ends of the outputs to a file."""
    settings = load_config(config)
    admin = connected(settings)
    creation = Creation(settings, admin, folder, print)
    counts = admin.partition_counts(written_topics(creation.version.pipeline))
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    found: dict[Partition, int] = {}

    def note_ends() -> None:
        found.update(admin.high_watermarks(places) if places else {})

    Signals().install()  # SIGTERM must not leave the job stopped
    try:
        creation.carry_out(drains=False, timeout_s=REST_TIMEOUT_S, at_rest=note_ends)
    except Interrupted as interruption:
        raise SystemExit(128 + interruption.number) from None
    ends.write_text(json.dumps([[*place, offset] for place, offset in found.items()]), "utf-8")


def read_ends(file: Path) -> dict[Partition, int]:
    """Return what `save` wrote. Raises `UnavailableError` if it cannot be read."""
    try:
        rows = from_json(list[tuple[Name, Count, Count]], parse(file.read_bytes()), "the ends")
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{file} cannot be read: {error}") from error
    return {(topic, number): offset for topic, number, offset in rows}


if __name__ == "__main__":
    save(*map(Path, sys.argv[1:]))
