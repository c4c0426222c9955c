"""A pipeline and its processors, as values."""
