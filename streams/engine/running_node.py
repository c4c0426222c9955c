"""The interface of a running node to the nodes that forward to it, and what its processor needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kafka_pipeline.common.code.user_frames import place_of_definition
from kafka_pipeline.streams.engine.left_undone import never_run
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.processor import AsyncProcessor, BatchProcessor, Processor
from kafka_pipeline.streams.record import Batch, Record

Receiver = Callable[[Record], object]
"""Takes a record; `refuse_lost` checks what it returns."""
BatchReceiver = Callable[[Batch], object]


class RunningNode:
    """Takes what parents forward: record by record, or as batches."""

    receive: Receiver
    receive_batch: BatchReceiver
    is_columnar: bool
    """Whether the node is made for batches."""

    def close(self) -> None:
        """Release what the node holds."""


def init(processor: Processor | BatchProcessor | AsyncProcessor, context: Any) -> Any:
    """Call `init` of a processor, which has its context even if its own `init` does not set it."""
    if not hasattr(processor, "context"):
        processor.context = context
    return processor.init(context)


def check_methods(name: str, processor: Processor | BatchProcessor | AsyncProcessor) -> None:
    """Raise StreamsError unless the processor has a `process`, and its methods can be called.

    The message names the place of the class or the method in user code.
    """
    kind = type(processor)
    argument = "batch" if isinstance(processor, BatchProcessor) else "record"
    prefix = "async def" if isinstance(processor, AsyncProcessor) else "def"
    bases = (Processor.process, BatchProcessor.process, AsyncProcessor.process)
    if getattr(processor.process, "__func__", None) in bases:
        raise StreamsError(
            f'processor "{name}": the class {kind.__name__} has no method process: write '
            f"{prefix} process(self, {argument}){place_of_definition(kind)}"
        )
    for method, arguments, form in (
        ("init", ["context"], "def init(self, context)"),
        ("process", [argument], f"{prefix} process(self, {argument})"),
        ("close", [], "def close(self)"),
    ):
        found = getattr(processor, method)
        try:
            inspect.signature(found).bind(*arguments)
        except ValueError:
            continue  # it is written in C, and its arguments are unknown
        except TypeError as error:
            raise StreamsError(
                f'processor "{name}": {method} of {kind.__name__} cannot be called as '
                f"{method}({', '.join(arguments)}): {error}. Write {form}"
                f"{place_of_definition(found)}"
            ) from None
    _check_run(name, processor)


def _check_run(name: str, processor: Processor | BatchProcessor | AsyncProcessor) -> None:
    """Raise StreamsError for a method whose body no call would run."""
    is_async = isinstance(processor, AsyncProcessor)
    for method in ("init", "process", "close"):
        found = getattr(processor, method)
        made = never_run(found)
        if not made or (is_async and inspect.iscoroutinefunction(found)):
            continue
        advice = (
            "write it without yield"
            if is_async
            else "make it a plain method, or the class an AsyncProcessor"
        )
        raise StreamsError(
            f'processor "{name}": {method} of {type(processor).__name__} is {made}, and calling it '
            f"runs nothing: {advice}{place_of_definition(found)}"
        )
