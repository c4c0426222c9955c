"""test.sh, with stand-ins for what it runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_until

_ROOT = Path(__file__).parents[2]
_NOTHING = "#!/bin/sh\n"
_RUNS = """\
#!/bin/sh
trap "exit 2" INT # as pytest does
trap "touch $0.ended; exit 1" TERM
touch "$0.began"
while true; do sleep 0.1; done
"""


def test_ctrl_c_ends_all_that_runs(tmp_path: Path) -> None:
    """mypy, which ignores it in the background, went on; pytest, which handles it, came next."""
    shutil.copy(_ROOT / "test.sh", tmp_path)
    tools = tmp_path / ".venv" / "bin"
    for path in (
        tmp_path / "scripts" / "setup.sh",
        *(tools / name for name in ("ruff", "mypy", "pytest", "python")),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_RUNS if path.name in ("mypy", "pytest") else _NOTHING)
        path.chmod(0o755)
    script = subprocess.Popen(
        ["./test.sh"],
        cwd=tmp_path,
        start_new_session=True,
        # A shell in the background passes on that it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: all((tools / f"{name}.began").exists() for name in ("mypy", "pytest")))
    os.killpg(script.pid, signal.SIGINT)
    try:
        assert script.wait(10) == 128 + signal.SIGINT
        wait_until((tools / "mypy.ended").exists)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
