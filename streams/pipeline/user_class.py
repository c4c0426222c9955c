"""Processors that are users' classes: `type: package.module:Class`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from common.errors import ConfigError
from common.fields import Fields
from common.yaml_positions import Problems, Scalar, describe
from streams.engine.nodes import Supplier
from streams.engine.user_code import UserCode
from streams.processor import AsyncProcessor, BatchProcessor, Processor

ASYNC_KEYS = ("max_in_flight", "timeout_ms", "ordered")
"""The keys of pipeline.yaml that only an `AsyncProcessor` has."""
_NO_LIMIT = 2**31 - 1


def read_async(fields: Fields, problems: Problems) -> dict[str, Any]:
    """Return the settings of an `AsyncProcessor` that are given, as JSON values."""
    settings: dict[str, Any] = {}
    for key in ("max_in_flight", "timeout_ms"):
        if fields.get(key) is not None:
            settings[key] = fields.number(key, low=1, high=_NO_LIMIT)
    ordered = fields.get("ordered")
    if ordered is not None:
        value = ordered.value if isinstance(ordered, Scalar) else None
        if value is True or value == "key":
            settings["ordered"] = value
        else:
            problems.add(ordered, f"ordered must be true or key, got {describe(ordered)}")
    return settings


def class_supplier(
    code: UserCode, reference: str, config: Mapping[str, Any], settings: Mapping[str, Any]
) -> Supplier:
    """Return a supplier of a class's processors; the class takes the config as keyword arguments.

    `settings` come from `read_async`. Raises ConfigError if the class is not found, is not a
    processor, does not accept the config, or is not an `AsyncProcessor` but has `settings` for one.
    """
    found = code.load(reference)
    kinds = Processor | BatchProcessor | AsyncProcessor
    if not (isinstance(found, type) and issubclass(found, kinds)):
        raise ConfigError(
            f"{reference} is no subclass of Processor, BatchProcessor or AsyncProcessor"
        )
    if settings and not issubclass(found, AsyncProcessor):
        keys = ", ".join(settings)
        raise ConfigError(f"{reference} is no AsyncProcessor, and only one can have {keys}")
    _check_config(found, reference, config)
    return partial(_make, found, config, settings)


def _make(
    made: type[Processor | BatchProcessor | AsyncProcessor],
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Processor | BatchProcessor | AsyncProcessor:
    processor = made(**config)
    for name, value in settings.items():
        setattr(processor, name, value)
    return processor


def _check_config(found: type, reference: str, config: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(found)
    except ValueError:
        return  # it inherits from a class in C, whose arguments are unknown
    try:
        signature.bind(**config)
    except TypeError as error:
        raise ConfigError(f"{reference} does not take this config: {error}") from None
