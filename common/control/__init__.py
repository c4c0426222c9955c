"""The daemons' control topics, their records and their last heartbeats."""
