"""Explains an exception in a node: what went wrong, where, in which node, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile
from types import FrameType
from typing import Any

from kafka_pipeline.common.code.error_words import HOW_TO_SHOW, class_name, described, words_of
from kafka_pipeline.common.code.user_frames import Trace, is_engine
from kafka_pipeline.common.errors import EscapedError, message_of, shorten
from kafka_pipeline.streams.engine.async_calls import AsyncCalls
from kafka_pipeline.streams.engine.nodes import NamedPart, ProcessorNode
from kafka_pipeline.streams.engine.running import RunningProcessor, RunningSink, RunningSource
from kafka_pipeline.streams.engine.running_async import RunningAsync
from kafka_pipeline.streams.engine.running_group import RunningGroup
from kafka_pipeline.streams.engine.runtime import GroupRuntime
from kafka_pipeline.streams.errors import StreamsError, UpgradeError
from kafka_pipeline.streams.processor import RecordRejectedError

MISTAKES = (
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
)
"""Errors that show a mistake in the code that raises them, rather than a record that is wrong."""

_LONGEST_REASON = 500
_LONGEST_PLACE = 200
_ABOUT_BYTES = re.compile(r"\b(bytes|byte indices)\b")


@dataclass(frozen=True, slots=True)
class NodeAtWork:
    """A node that was at work; `kind` is processor, sink or source."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'


class Explanation:
    """Explains an exception that a node raised; each part is worked out when it is needed."""

    def __init__(
        self,
        error: Exception,
        source: RunningSource | None = None,
        *,
        with_values: bool = False,
    ) -> None:
        """`source` is the record's source, in case the stack does not show it.

        `with_values` says whether the words may quote records.
        """
        self.error = error
        self._source = source
        self._with_values = with_values

    @cached_property
    def trace(self) -> Trace:
        """The traceback of the exception."""
        return Trace.of(self.error)

    @cached_property
    def reason(self) -> str:
        """A description of what went wrong, and where in user code.

        It is no longer than a header or a status can take. If a processor rejects a record on
        purpose, its words are enough, and the place is left out.
        """
        error, words = self.error, self._words
        is_whole = self._with_values or words == message_of(error)
        if not isinstance(error, StreamsError | EscapedError) or not words:
            kind = type(error).__name__
            words = f"{kind}: {words}" if words else f"{kind}{self._cause}"
        place = "" if isinstance(error, RecordRejectedError) else self.where
        return shorten(words, _LONGEST_REASON) + place + ("" if is_whole else f"; {HOW_TO_SHOW}")

    @property
    def _cause(self) -> str:
        """The error from which user code raised this one, which says nothing that may be shown."""
        causes, each = list[BaseException](), self.error.__cause__
        while each is not None and not any(each is known for known in causes):
            causes.append(each)
            each = each.__cause__
        if not causes:
            return ""
        said = (cause for cause in causes if words_of(cause, with_values=self._with_values))
        found = described(next(said, causes[0]), with_values=self._with_values)
        return f", caused by {found}"

    @property
    def traceback(self) -> str:
        """The traceback of user code; see `Trace.text`."""
        error = self.trace.error
        is_same = error is self.error
        words = self._words if is_same else words_of(error, with_values=self._with_values)
        return self.trace.text(f"{class_name(error)}: {words}" if words else class_name(error))

    @cached_property
    def _words(self) -> str:
        return words_of(self.error, with_values=self._with_values)

    @cached_property
    def where(self) -> str:
        """The suffix for a message: ` (shop.py:17 in process, processor "Enrich")`.

        Advice follows, if there is any. "" if no user code is to blame.
        """
        frames = self.trace.user_frames
        if not frames:
            return ""
        place = ", ".join(map(str, filter(None, (frames[-1], self.node))))
        advice = f"; {self.advice}" if self.advice else ""
        return f" ({shorten(place, _LONGEST_PLACE)}){advice}"

    @cached_property
    def node(self) -> NodeAtWork | None:
        """The node whose code raised the exception; `None` if the stack does not say.

        This is the node of the innermost line of user code, even if the engine raised the
        exception because it refused what that line did.
        """
        trace = self.trace
        group = _group(trace)
        own = trace.user_entries
        innermost = own[-1][0] if own else None
        outwards = (frame for frame, _ in reversed(trace.entries))
        for frame in dropwhile(lambda frame: innermost not in (None, frame), outwards):
            if group is not None and (name := _processor_in(frame, group)):
                return NodeAtWork("processor", name)
            if is_engine(frame) and (node := _node_in(frame)):
                return node
        only = group.only_processor if group is not None else None
        return None if only is None else NodeAtWork("processor", only)

    @cached_property
    def is_mistake(self) -> bool:
        """Whether user code is wrong, whatever the record: it raised one of `MISTAKES`."""
        error = self.error.__cause__ if isinstance(self.error, UpgradeError) else self.error
        return isinstance(error, MISTAKES) and bool(self.trace.user_entries)

    @cached_property
    def advice(self) -> str:
        """Advice for user code that fails on bytes because no serde was given; or ""."""
        error = self.trace.error
        if type(error) not in (TypeError, AttributeError) or not _ABOUT_BYTES.search(
            message_of(error)
        ):
            return ""
        found = (s for s in _locals(self.trace, "source") if isinstance(s, RunningSource))
        source = next(found, self._source)
        if source is None or not source.bytes_columns:
            return ""
        columns = source.bytes_columns
        which = f"the {columns[0]} is" if len(columns) == 1 else "key and value are"
        keys = ", ".join(f"{column}: …" for column in columns)
        parameters = " and ".join(f"{column}_serde" for column in columns)
        return (
            f"{which} bytes: `serdes` gives none; write serdes: {{{keys}}} in pipeline.yaml, or "
            f"{parameters} in add_source"
        )


def reason(error: Exception, *, with_values: bool = False) -> str:
    """Return what went wrong, in words, and where; see `Explanation.reason`."""
    return Explanation(error, with_values=with_values).reason


def _group(trace: Trace) -> RunningGroup | None:
    for found in _locals(trace, "self"):
        match found:
            case RunningGroup() as group:
                return group
            case GroupRuntime(nodes=group):
                return group
    return None


def _locals(trace: Trace, name: str) -> Iterator[Any]:
    """Yield the local variables of that name in frames of the engine."""
    return (frame.f_locals.get(name) for frame, _ in trace.entries if is_engine(frame))


def _processor_in(frame: FrameType, group: RunningGroup) -> str | None:
    """Return the name of a processor that a frame works with, usually `self` of its methods."""
    for value in frame.f_locals.values():
        # The arguments of a decorator's wrapper are a tuple.
        candidate = value[0] if type(value) is tuple and value else value
        if (name := group.name_of(candidate)) is not None:
            return name
    return None


def _node_in(frame: FrameType) -> NodeAtWork | None:
    """Return the node that a frame of the engine works for."""
    found = frame.f_locals
    match found.get("self"):
        case (
            NamedPart(name=name)
            | RunningProcessor(name=name)
            | RunningAsync(name=name)
            | AsyncCalls(name=name)
        ):
            return NodeAtWork("processor", name)
        case RunningSink(name=name):
            return NodeAtWork("sink", name)
    match found.get("source"), found.get("node"):
        case RunningSource(name=name), _:
            return NodeAtWork("source", name)
        case _, ProcessorNode(name=name):
            return NodeAtWork("processor", name)
    return None
