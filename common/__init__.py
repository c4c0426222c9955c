"""Code that both daemons share: messages, the pipeline, topic names and errors."""
