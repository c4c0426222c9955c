"""Secrets, and the key with which the daemons and tools of a job sign control records."""
