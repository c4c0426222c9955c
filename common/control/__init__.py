"""What the daemons of a job say to each other: their topics, records and last heartbeats."""
