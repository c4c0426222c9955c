"""Rehearsals: a new version of a pipeline runs in shadow, and its results are compared."""
