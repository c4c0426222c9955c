"""The jars of versions of Kafka other than the one that a local broker runs."""

from __future__ import annotations

from pathlib import Path

from kafka_pipeline.admin.broker.jars import JarSet


def _jars_of(version: str) -> JarSet:
    folder = Path(__file__).with_name(version)
    return JarSet(
        title=f"Kafka {version}",
        folder=f"kafka-{version}",
        ivy_file=folder / "ivy.xml",
        main_jar=f"kafka_2.13-{version}.jar",
        digests=folder / "jars.sha256",
    )


JARS = {version: _jars_of(version) for version in ("3.7.2", "3.9.2", "4.0.2", "4.3.1")}
"""The sets of jars by version, the oldest first."""
