"""A daemon's logs, and its metrics and health over HTTP."""
