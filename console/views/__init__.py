"""Views of a snapshot as JSON: pure functions, which know nothing of HTTP."""
