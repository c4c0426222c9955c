"""Processors that are classes of the user's: `type: package.module:Class`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from common.errors import ConfigError
from streams.processor import BatchProcessor, Processor
from streams.user_code import UserCode


def load_class(
    code: UserCode, reference: str, config: Mapping[str, Any]
) -> type[Processor | BatchProcessor]:
    """Return the class, which takes the config as keyword arguments.

    Raises ConfigError for one that is not found, is no processor, or takes others.
    """
    found = code.load(reference)
    if not (isinstance(found, type) and issubclass(found, Processor | BatchProcessor)):
        raise ConfigError(f"{reference} is no subclass of Processor or BatchProcessor")
    try:
        signature = inspect.signature(found)
    except ValueError:
        return found  # it inherits from a class in C, and nothing is known of its arguments
    try:
        signature.bind(**config)
    except TypeError as error:
        raise ConfigError(f"{reference} does not take this config: {error}") from None
    return found
