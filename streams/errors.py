"""The errors that the stream API raises; their base class is `StreamsError`."""

from __future__ import annotations

from kafka_pipeline.common.code.error_words import words_of
from kafka_pipeline.common.errors import OwnError, message_of


class StreamsError(OwnError):
    """The base class of the stream API's own errors."""


class TopologyError(StreamsError):
    """The graph is invalid: the message names the node or store. Fix the builder's calls."""


class InvalidArgumentError(StreamsError, ValueError):
    """A call got an invalid argument; the message says what is valid. Fix the call."""


class InvalidTimestampError(StreamsError):
    """A timestamp is too far from the clock; `on_error` says what happens to the record."""


class SerializationError(StreamsError):
    """A serde cannot read or write a key or a value; `on_error` says what happens."""


def reworded(error: StreamsError, words: str) -> SerializationError:
    """Return a `SerializationError` that adds words to those of another error."""
    shown = words_of(error, with_values=False) or "the error of a serde of yours"
    return SerializationError(f"{error}. {words}", shown=f"{shown}. {words}")


class EndedProcessError(StreamsError):
    """A record has ended a process that ran user code; `on_error` says what happens to it."""


class SupplierError(StreamsError):
    """A supplier raised instead of making a processor; its error is the cause."""


class StateStoreError(StreamsError):
    """A store was misused: after `close`, with a null key, or with an invalid range."""


class UpgradeError(StreamsError):
    """The upgrade of a store's value failed; its error is the cause. `on_error` says what happens.

    The message names the store, the formats and the key.
    """


def not_upgraded(error: Exception, words: str, key: bytes) -> UpgradeError:
    """Return the `UpgradeError` for what an upgrade has raised; `words` name the store."""
    kind, shown = type(error).__name__, words_of(error, with_values=False)
    return UpgradeError(
        f"{words} for the key {key!r}: {kind}: {message_of(error)}",
        shown=f"{words}: {kind}{f': {shown}' if shown else ''}",
    )


class UnknownTopicError(StreamsError):
    """A test names a `topic` that the topology does not have; the message suggests a name."""

    def __init__(self, message: str, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class PartitionError(StreamsError):
    """A partitioner returned something other than a set of existing partitions."""
