"""Starts Spark, with the engine's settings, zone and code."""
