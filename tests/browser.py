"""A real browser for tests of pages: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

Scheme = Literal["light", "dark"]
WAIT_MS = 60_000

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium here (Debian: apt install chromium)"
)


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # The pages of these tests are our own. Containers often have no room for a sandbox.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield found
        finally:
            found.close()


@contextmanager
def open_page(
    of: Browser,
    address: str,
    width: int = 1280,
    scheme: Scheme = "light",
    *,
    may_lose_connection: bool = False,
) -> Iterator[Page]:
    """Open a page; at the end, it must not have failed, nor have asked for what is elsewhere."""
    context = of.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    problems: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    try:
        yield page
    finally:
        context.close()
    if not may_lose_connection:
        assert problems == []
    origin = address.partition("#")[0]
    assert [url for url in asked if not url.startswith(origin)] == []
