"""Files that hold one secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_pipeline.common.security.secret_file import MOST_BYTES, SecretFileError, read_secret_file


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a", "a"),
        (b"a\n", "a"),
        (b"a\r\n", "a"),
        (b"a\n\n", "a\n"),
        (b"a\r", "a\r"),
        (b" a \n", " a "),
        ("ä\n".encode(), "ä"),
        (b"", ""),
        (b"x" * MOST_BYTES, "x" * MOST_BYTES),
    ],
)
def test_content_without_the_end_of_its_line(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(content)
    assert read_secret_file(tmp_path / "s") == expected


def problem(path: Path, *, follows_link: bool = True) -> str:
    with pytest.raises(SecretFileError) as caught:
        read_secret_file(path, follows_link=follows_link)
    return str(caught.value)


def test_what_cannot_be_read_says_why_and_not_what(tmp_path: Path) -> None:
    assert problem(tmp_path / "none") == "there is no such file"
    assert problem(tmp_path) == "it is a directory"
    assert problem(tmp_path / "a\0b") == "it cannot be read: embedded null byte"
    (tmp_path / "s").write_bytes(b"hunter2\xff")
    assert problem(tmp_path / "s") == "it is not UTF-8 (byte 8)"
    (tmp_path / "s").write_bytes(b"x" * (MOST_BYTES + 1))
    assert problem(tmp_path / "s") == "it has more than 65536 bytes, too many for a secret"
    assert problem(tmp_path / "s" / "t") == "it cannot be read: Not a directory"


def test_a_pipe_and_a_device_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        assert problem(path) == "it is a device or a pipe, not a file"


def test_a_link_is_followed_only_if_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("hunter2")
    (tmp_path / "link").symlink_to("s")
    assert read_secret_file(tmp_path / "link") == "hunter2"
    assert "cannot be read" in problem(tmp_path / "link", follows_link=False)
