"""What a daemon shows to those who watch it: its logs, and its metrics and health over HTTP."""
