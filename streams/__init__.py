"""The stream API that users import.

from streams import Processor, PunctuationType, Record, TopologyBuilder, serdes, stores
"""

from common.processors import OnError
from streams import serdes, stores
from streams.builder import TopologyBuilder
from streams.dsl import agg, windows
from streams.dsl.async_values import AsyncSettings
from streams.dsl.emit import Emit
from streams.dsl.expression_makers import coalesce, col, key, struct, timestamp, value, when
from streams.dsl.expressions import Expression, lit
from streams.dsl.streams_builder import StreamsBuilder
from streams.dsl.suppress import Suppress
from streams.engine.node_group import NodeGroup
from streams.errors import (
    InvalidArgumentError,
    PartitionError,
    SerializationError,
    StateStoreError,
    StreamsError,
    SupplierError,
    TopologyError,
    UnknownTopicError,
)
from streams.group_settings import GroupSettings
from streams.partitioning import StreamPartitioner
from streams.processor import (
    AsyncProcessor,
    AsyncProcessorContext,
    BatchProcessor,
    Processor,
    ProcessorContext,
    RecordRejectedError,
)
from streams.punctuation import Cancellable, PunctuationType
from streams.record import Batch, Record
from streams.serdes import Serde
from streams.testing.driver import TopologyTestDriver
from streams.testing.driver_topics import ReadRecord, TestInputTopic, TestOutputTopic
from streams.timestamps import (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from streams.topology import Topology

__all__ = [
    "AsyncProcessor",
    "AsyncProcessorContext",
    "AsyncSettings",
    "Batch",
    "BatchProcessor",
    "Cancellable",
    "Emit",
    "Expression",
    "FailOnInvalidTimestamp",
    "FieldTimestampExtractor",
    "GroupSettings",
    "InvalidArgumentError",
    "LogAndSkipOnInvalidTimestamp",
    "NodeGroup",
    "OnError",
    "PartitionError",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "ReadRecord",
    "Record",
    "RecordRejectedError",
    "Serde",
    "SerializationError",
    "StateStoreError",
    "StreamPartitioner",
    "StreamsBuilder",
    "StreamsError",
    "SupplierError",
    "Suppress",
    "TestInputTopic",
    "TestOutputTopic",
    "TimestampExtractor",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "TopologyTestDriver",
    "UnknownTopicError",
    "UsePartitionTimeOnInvalidTimestamp",
    "WallclockTimestampExtractor",
    "agg",
    "coalesce",
    "col",
    "key",
    "lit",
    "serdes",
    "stores",
    "struct",
    "timestamp",
    "value",
    "when",
    "windows",
]
