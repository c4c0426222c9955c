"""Consumer groups that all jobs share: librdkafka needs names for clients that commit nothing."""

CONTROL_GROUP = "control"
"""The group of those who read control topics."""

BULK_GROUP = "bulk"
"""The group of those who read whole topics."""
