"""User code: imported, told apart from the engine's own, and its errors in words."""
