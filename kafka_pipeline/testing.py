"""Tests of topologies without Kafka.

from kafka_pipeline.testing import TopologyTestDriver
"""

from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.testing.driver import TopologyTestDriver
from kafka_pipeline.streams.testing.driver_topics import ReadRecord, TestInputTopic, TestOutputTopic

__all__ = ["GroupSettings", "ReadRecord", "TestInputTopic", "TestOutputTopic", "TopologyTestDriver"]
