"""Code that both daemons share: configuration, pipeline, topic names, logging and errors."""
