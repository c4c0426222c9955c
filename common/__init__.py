"""Code that both daemons share: configuration, topology, topic names, logging and errors."""
