"""Kafka clients of the engine. The only package that imports confluent_kafka."""
