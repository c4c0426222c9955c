"""A pipeline over history: bounded tasks that read and write files. Needs Arrow, but no Spark."""
