"""Secrets, and the key by which the daemons and tools of a job sign control records."""
