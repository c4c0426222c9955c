"""Tests of a topology or a pipeline without Kafka: the driver, suites in YAML, a pytest fixture."""
