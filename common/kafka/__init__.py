"""The engine's Kafka clients. No other package of the engine imports confluent_kafka."""
