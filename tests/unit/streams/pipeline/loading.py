"""Loads the text of a pipeline.yaml, and returns the errors for the mistakes in it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.small_config import small_config

CONFIG = small_config(tm_number=2, parallelism=2, modules=("shop", "tests.user_code", "_a"))
READ_AS_FEEDBACK = (
    "if its records are to come back, read that topic by a source with `feedback: true`, in a "
    "topology with feedback=True"
)


def load(text: str, config: Config = CONFIG) -> Pipeline:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pipeline.yaml")
        path.write_text(text, encoding="utf-8")
        return load_pipeline(path, config)


def problems_in(text: str, config: Config = CONFIG) -> list[str]:
    """Return `line:column: message` for each problem."""
    with pytest.raises(ConfigError) as caught:
        load(text, config)
    assert all(Path(p.file).name == "pipeline.yaml" for p in caught.value.problems)
    return [f"{p.line}:{p.column}: {p.message}" for p in caught.value.problems]
