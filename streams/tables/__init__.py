"""Tables that tasks write, each record once: with offsets in the commits of the table itself."""
