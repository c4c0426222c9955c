"""Reads pipeline.yaml: its processors, sources and sinks; checks that they fit together."""
