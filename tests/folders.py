"""The folders that hold all code but the tests."""

FOLDERS = (
    "admin",
    "benchmarks",
    "common",
    "console",
    "examples",
    "jobmanager",
    "operations",
    "streams",
    "taskmanager",
)
