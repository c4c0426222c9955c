"""The smallest config.yaml, for what needs no Kafka."""

SMALL_CONFIG = """
server_ip: 127.0.0.1
server_port: 9092
tm_number: 1
parallelism: 1
replication_factor: 1
source_topic: in
sink_topic: out
"""
"""Lines 2 to 8: a test adds its own behind them."""
