"""What a daemon shows to those who watch it: its metrics and its health, over HTTP."""
