"""Series of user code: counters and gauges with a name and labels of their own."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.printable import encodable

LABELS = ("taskmanager", "task", "processor", "partition")
"""The labels of a task's metrics, which its series have in addition."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,99}")
_LONGEST_VALUE = 80


class UserSeries(NamedTuple):
    """What is counted or measured; `labels` are sorted by name."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def user_series(name: str, labels: tuple[tuple[str, str], ...]) -> UserSeries:
    """Return a series with valid names. Raises ValueError for others, with what to do."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            "the name of a counter or a gauge has up to 100 lower-case letters, digits and "
            f"underscores, and begins with a letter, unlike {name!r}"
        )
    if name.endswith("_total"):
        raise ValueError(
            f"a counter gets _total by itself, and no gauge has it: leave it out of {name!r}"
        )
    for label, value in labels:
        if label in LABELS:
            raise ValueError(f"each series has the label {label} already: give it another name")
        if not _LABEL.fullmatch(label):
            raise ValueError(
                "the name of a label has up to 100 letters from A to Z, digits and underscores, "
                f"and begins neither with a digit nor with two underscores, unlike {label!r}"
            )
        if not isinstance(value, str):
            raise ValueError(f"the label {label} is a {type(value).__name__}: give it as a string")
    shown = ((label, shorten(encodable(value), _LONGEST_VALUE)) for label, value in labels)
    return UserSeries(name, tuple(sorted(shown)))
