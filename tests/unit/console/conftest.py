"""What tests of the console's pages share: a browser, and a file with the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import browser
from tests.console_page import TOKEN


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("console") / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file
