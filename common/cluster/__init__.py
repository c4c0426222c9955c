"""The state of a running job, worked out from heartbeats."""
