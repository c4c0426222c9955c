"""Views of a snapshot as JSON: pure functions, independent of HTTP."""
