"""Processors that run on Spark: their definition, and how Spark runs them batch by batch."""
