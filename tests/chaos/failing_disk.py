"""A disk that fails while a test wants it to: a library that is preloaded into processes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_COMPILE_TIMEOUT_S = 60


class NoFailingDiskError(Exception):
    """This machine cannot preload such a library; the caller skips what needs it."""


class FailingDisk:
    """A folder whose files cannot be used while the disk fails.

    Only processes with `environment`, and those that they start, notice.
    """

    def __init__(self, folder: Path, own: Path) -> None:
        """Compile the library into `own`, an empty or missing folder.

        Raises `NoFailingDiskError` if there is no C compiler for Linux.
        """
        own.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("cc")
        if compiler is None or os.uname().sysname != "Linux":
            raise NoFailingDiskError("there is no C compiler on Linux")
        library = own / "failing_disk.so"
        command = [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            "-w",
            "-o",
            str(library),
            str(_SOURCE),
            "-ldl",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S)
        if done.returncode != 0:
            raise NoFailingDiskError(f"{compiler} does not work: {done.stderr.strip()}")
        self._error_file = own / "error"
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "FAILING_DISK_FOLDER": f"{folder}/",
            "FAILING_DISK_ERROR_FILE": str(self._error_file),
        }

    def fail(self, error: int) -> None:
        """Let calls fail with an error: `errno.EROFS` only what changes files, others all."""
        assert error in errno.errorcode
        prepared = self._error_file.with_suffix(".new")
        prepared.write_text(str(error))
        prepared.rename(self._error_file)

    def mend(self) -> None:
        """Let all calls work again."""
        self._error_file.unlink(missing_ok=True)
