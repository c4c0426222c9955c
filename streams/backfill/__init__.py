"""A pipeline over history: bounded tasks that read files and write files. Needs Arrow, no Spark."""
