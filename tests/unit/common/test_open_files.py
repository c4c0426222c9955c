"""The limit of open files of a process and of those that it starts."""

from __future__ import annotations

import subprocess
import sys


def test_limit_is_raised_to_what_is_allowed_and_inherited() -> None:
    code = """
import resource, subprocess, sys
from kafka_pipeline.common.process.open_files import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))
print(raise_limit(), flush=True)
show = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
subprocess.run([sys.executable, "-c", show], check=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "400\n(400, 400)\n"
