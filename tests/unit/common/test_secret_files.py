"""Files with secrets that every user of the host can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.secret_files import warn_of_readable_secrets
from tests.unit.common.config_texts import BASE

WRITTEN = "kafka: {sasl.username: me, sasl.password: hunter2}\n"
TAKEN = 'kafka: {sasl.username: me, sasl.password: "${SECRET_OF_KAFKA}"}\n'


def warnings(folder: Path, more: str, mode: int) -> list[Any]:
    file = folder / "config.yaml"
    file.write_text(f"{BASE}\n{more}")
    file.chmod(mode)
    with capture_logs() as logs:
        warn_of_readable_secrets(file, load_config(file))
    assert "hunter2" not in str(logs)
    return [entry.get("settings") or entry["event"] for entry in logs]


def test_a_password_in_a_file_that_all_can_read(tmp_path: Path) -> None:
    assert warnings(tmp_path, WRITTEN, 0o644) == [["sasl.password"]]
    assert warnings(tmp_path, WRITTEN, 0o640) == []


@pytest.mark.parametrize(
    "name", ["spark.authenticate.secret", "spark.hadoop.fs.azure.account.key.me.blob.example"]
)
def test_secrets_of_spark_count_too(tmp_path: Path, name: str) -> None:
    assert warnings(tmp_path, f"spark: {{conf: {{{name}: hunter2}}}}\n", 0o644) == [[name]]


def test_a_file_without_secrets_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_KAFKA", "hunter2")
    (tmp_path / "token").write_text("hunter2hunter2hunter2")
    token = "console_token_file: token\nconsole_port: 0\n"
    assert warnings(tmp_path, TAKEN + token, 0o644) == []


def test_a_control_key_that_all_can_read(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    key.chmod(0o604)
    (found,) = warnings(tmp_path, "control_key_file: key\n", 0o600)
    assert found.startswith("everyone on this host can read the control key")
    key.chmod(0o600)
    assert warnings(tmp_path, "control_key_file: key\n", 0o644) == []
