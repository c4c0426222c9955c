"""Event time: the clock of a record, the time of a step, what is late, and what holds time back.

Cores without I/O. docs/explanation/time.md says how they fit together.
"""
