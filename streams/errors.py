"""What the stream API raises; the base class is `StreamsError`."""

from __future__ import annotations


class StreamsError(Exception):
    """The base of all errors that the stream API raises on its own account."""


class TopologyError(StreamsError):
    """A graph that cannot be: the message names the node or store. Mend the builder's calls."""


class InvalidArgumentError(StreamsError, ValueError):
    """A call got what it cannot use; the message says what it takes. Mend the call."""


class SerializationError(StreamsError):
    """A serde cannot read or write a key or a value; `on_error` says what happens."""


class SupplierError(StreamsError):
    """A supplier raised, and made no processor; what it raised is the cause."""


class StateStoreError(StreamsError):
    """A store was used as it cannot be: after `close`, with a null key, with a wrong range."""


class UnknownTopicError(StreamsError):
    """A test names a `topic` that nothing in the topology has; the message has what was meant."""

    def __init__(self, message: str, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class PartitionError(StreamsError):
    """A partitioner returned what is no set of existing partitions."""
