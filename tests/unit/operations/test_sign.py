"""`pipeline sign` before it talks to Kafka."""

from __future__ import annotations

from pathlib import Path

from tests.in_process import invoke
from tests.unit.common.config_texts import BASE


def test_without_a_key_there_is_nothing_to_sign_with(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(BASE)
    done = invoke("sign", file, "--yes")
    assert done.exit_code == 2
    assert "config.yaml has no control_key_file: there is no key to sign with" in done.stderr
