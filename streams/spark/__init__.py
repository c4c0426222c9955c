"""Processors whose logic is Spark's: what they are, and how Spark runs them batch by batch."""
