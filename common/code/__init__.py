"""User code: importing it, telling it from the engine's code, and wording its errors."""
