"""Refuses user code whose body would never run, and results that would be lost."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from kafka_pipeline.common.code.user_frames import place_of_definition
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.record import Batch, Record

_COROUTINE = "a coroutine (async def)"
_GENERATOR = "a generator (yield)"
_ASYNC_GENERATOR = "an asynchronous generator"
_FUNCTIONS = (
    (inspect.iscoroutinefunction, _COROUTINE),
    (inspect.isgeneratorfunction, _GENERATOR),
    (inspect.isasyncgenfunction, _ASYNC_GENERATOR),
)
_NEVER_RUN: dict[type, str] = {
    CoroutineType: _COROUTINE,
    GeneratorType: _GENERATOR,
    AsyncGeneratorType: _ASYNC_GENERATOR,
}


def never_run(function: object) -> str:
    """Return what a call of a function makes instead of running its body, or ""."""
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return next((made for is_of, made in _FUNCTIONS if is_of(function) or is_of(call)), "")


def is_async(function: object) -> bool:
    """Return whether calling something gives a coroutine."""
    return never_run(function) == _COROUTINE


def refuse_lost(function: Callable[..., Any], returned: object) -> None:
    """Raise `StreamsError` if a call, whose result nobody takes, returned records or unrun code.

    Any other result is ignored.
    """
    if made := _NEVER_RUN.get(type(returned), ""):
        why = "which nobody runs"
    elif _has_records(returned):
        made, why = f"a {type(returned).__name__}", "which is lost: forward it instead"
    else:
        return
    if isinstance(returned, CoroutineType):
        returned.close()  # or Python warns that it was never awaited
        why += ": only an AsyncProcessor and map_values of a stream take coroutines"
    name = getattr(function, "__qualname__", type(function).__name__)
    raise StreamsError(f"{name} returned {made}, {why}{place_of_definition(function)}")


def _has_records(returned: object) -> bool:
    if isinstance(returned, list | tuple):
        return any(isinstance(each, Record | Batch) for each in returned[:1])
    return isinstance(returned, Record | Batch)
