"""The files named in config.yaml that lookup tables must not read, as they may hold secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka_pipeline.common.config.expansion import ExpansionError, references
from kafka_pipeline.common.config.yaml_positions import Items, Map, Scalar, Value

_OF_KAFKA = ("location", "keytab")


def referred_files(value: Value, folder: Path) -> Iterator[Path]:
    """Yield the files named by references `${file:PATH}` in a YAML file in this folder."""
    if isinstance(value, Items):
        for item in value.items:
            yield from referred_files(item, folder)
    elif isinstance(value, Map):
        for pair in value.pairs:
            yield from referred_files(pair.value, folder)
    elif isinstance(value, Scalar) and isinstance(value.value, str):
        try:
            found = references(value.value)
        except ExpansionError:
            return  # It is reported where it is expanded.
        yield from (folder / each.file for each in found if each.file)


def kafka_files(settings: Mapping[str, str]) -> Iterator[Path]:
    """Yield the keys and certificates named in librdkafka settings."""
    for name, value in settings.items():
        if name.endswith(_OF_KAFKA):
            yield Path(value).absolute()
