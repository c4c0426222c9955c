"""`pipeline backfill`: the processors of a pipeline over history, as bounded Spark work."""
