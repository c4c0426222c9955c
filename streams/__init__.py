"""Processors, topologies and the DSL, their stores, and what runs them."""
