"""Reads pipeline.yaml: its processors, sources and sinks, and whether they fit together."""
