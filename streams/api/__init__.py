"""What users import from `kafka_pipeline`."""

from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams import schema_registry, serdes, stores
from kafka_pipeline.streams.dsl import agg, windows
from kafka_pipeline.streams.dsl.async_values import AsyncSettings
from kafka_pipeline.streams.dsl.expressions import (
    Expression,
    coalesce,
    col,
    key,
    lit,
    struct,
    timestamp,
    value,
    when,
)
from kafka_pipeline.streams.dsl.global_table import GlobalTable
from kafka_pipeline.streams.dsl.grouped_stream import (
    CogroupedStream,
    GroupedStream,
    WindowedCogroupedStream,
)
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.streams_builder import StreamsBuilder
from kafka_pipeline.streams.dsl.suppress import Suppress
from kafka_pipeline.streams.dsl.table import GroupedTable, Table
from kafka_pipeline.streams.dsl.windowed_stream import WindowedStream
from kafka_pipeline.streams.engine.builder import TopologyBuilder
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.errors import (
    InvalidArgumentError,
    PartitionError,
    SerializationError,
    StateStoreError,
    StreamsError,
    SupplierError,
    TopologyError,
    UnknownTopicError,
    UpgradeError,
)
from kafka_pipeline.streams.partitioning import StreamPartitioner
from kafka_pipeline.streams.processor import (
    AsyncProcessor,
    AsyncProcessorContext,
    BatchProcessor,
    Processor,
    ProcessorContext,
    RecordRejectedError,
)
from kafka_pipeline.streams.punctuation import Cancellable, PunctuationType
from kafka_pipeline.streams.record import Batch, Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.timestamps import (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from kafka_pipeline.streams.windowed import Window, Windowed

__all__ = [
    "AsyncProcessor",
    "AsyncProcessorContext",
    "AsyncSettings",
    "Batch",
    "BatchProcessor",
    "Cancellable",
    "CogroupedStream",
    "Expression",
    "FailOnInvalidTimestamp",
    "FieldTimestampExtractor",
    "GlobalTable",
    "GroupedStream",
    "GroupedTable",
    "InvalidArgumentError",
    "LogAndSkipOnInvalidTimestamp",
    "OnError",
    "PartitionError",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Record",
    "RecordRejectedError",
    "Serde",
    "SerializationError",
    "StateStoreError",
    "Stream",
    "StreamPartitioner",
    "StreamsBuilder",
    "StreamsError",
    "SupplierError",
    "Suppress",
    "Table",
    "TimestampExtractor",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "UnknownTopicError",
    "UpgradeError",
    "UsePartitionTimeOnInvalidTimestamp",
    "WallclockTimestampExtractor",
    "Window",
    "Windowed",
    "WindowedCogroupedStream",
    "WindowedStream",
    "agg",
    "coalesce",
    "col",
    "key",
    "lit",
    "schema_registry",
    "serdes",
    "stores",
    "struct",
    "timestamp",
    "value",
    "when",
    "windows",
]
