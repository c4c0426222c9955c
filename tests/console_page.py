"""A console with actions and records, for tests of its pages, and how somebody signs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Page, expect

from kafka_pipeline.console.job import Job
from kafka_pipeline.console.server import ConsoleServer
from kafka_pipeline.console.views.snapshot import Snapshot
from tests.console_sample import config

TOKEN = "a-token-of-the-tests-1"


@contextmanager
def served(next_snapshot: Callable[[], Snapshot], job: Job, token_file: Path) -> Iterator[str]:
    """Serve a console with actions and records; yield its address."""
    settings = replace(config(), console_token_file=token_file, console_records=True)
    server = ConsoleServer(settings, next_snapshot, job)
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


def sign_in(page: Page) -> None:
    page.get_by_role("button", name="Sign in to act").click()
    dialog = page.get_by_role("dialog", name="Sign in to act")
    dialog.get_by_label("Token of the console").fill(TOKEN)
    dialog.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
