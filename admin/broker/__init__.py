"""A local Kafka without containers: `pipeline broker`, tests and benchmarks use it."""
