"""Runs a node group: queues, order, time, undo, stores. Knows nothing of Kafka, Spark or YAML."""
