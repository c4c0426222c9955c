"""The control messages of the daemons: their values, JSON and signatures."""
