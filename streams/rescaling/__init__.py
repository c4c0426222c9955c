"""Spreads the state of tasks over another number of tasks."""
