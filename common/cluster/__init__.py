"""The state of a running job, derived from heartbeats."""
