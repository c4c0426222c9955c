"""State stores: what a task remembers, by the transactions that have committed."""
