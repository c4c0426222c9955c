"""The console of a real cluster in a real browser: a TaskManager dies, letters are redriven."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser import browser, needs_chromium, open_page
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long, needs_chromium]

PIPELINE = """
- {id: Forwarder, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [Counter], on_error: dead_letter}
- {id: Counter, type: count, to: [sink]}
"""
HEARTBEAT_MS = 500
PART = [(b"k%d" % (i % 50), b"bad" if i % 40 == 0 else b"%d" % i) for i in range(200)]
TOKEN = "a-token-of-the-tests-1"
ROOT = Path(__file__).parents[2]
SHUT = [(b"k%d" % n, b"shut %d" % n) for n in range(15)]
OPEN = [(b"k%d" % n, b"open %d" % n) for n in range(5)]
MOVE = re.compile(r"tasks? moved from TaskManager 1 to TaskManager 0")


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    name = f"console_{os.getpid()}"
    with engine(
        tmp_path,
        bootstrap_servers,
        name,
        PIPELINE,
        heartbeat_interval_ms=HEARTBEAT_MS,
        console_port=0,
    ) as made:
        yield made


@pytest.fixture
def gated(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A job that rejects some records while there is no file "open", with a console to act in."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    config = f'{{file: "{tmp_path / "open"}"}}'
    pipeline = f"""
- {{id: Gate, type: "tests.user_code.gates:Gate", config: {config}, to: [Counter],
   on_error: dead_letter}}
- {{id: Counter, type: count, to: [sink]}}
"""
    with engine(
        tmp_path,
        bootstrap_servers,
        f"gated_{os.getpid()}",
        pipeline,
        tm_number=1,
        heartbeat_interval_ms=HEARTBEAT_MS,
        console_port=0,
        console_token_file=token,
        console_records="true",
        state_port=0,
        modules="[tests.user_code.gates]",
        python_path=f"[{ROOT}]",
    ) as made:
        yield made


@contextmanager
def load(job: Engine) -> Iterator[None]:
    """Write records all the time."""
    over = threading.Event()

    def run() -> None:
        for _ in itertools.takewhile(lambda _: not over.wait(0.1), itertools.count()):
            job.write(PART)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def address_in(log: Path) -> str:
    found = re.search(r"the console is served +address=(\S+)", log.read_text())
    assert found, log.read_text()
    return found[1]


def test_a_killed_task_manager_is_seen_and_its_tasks_move(job: Engine) -> None:
    manager = job.start_job_manager()
    job.start_task_manager(0)
    victim = job.start_task_manager(1)
    job.wait_until(all_run([0, 1]))
    address = address_in(manager.log_file)
    with (
        load(job),
        browser() as chromium,
        open_page(chromium, f"{address}#/graph") as page,
    ):
        expect(page.locator("#summary")).to_contain_text("2 of 2 up")
        arc = page.locator(".arc", has=page.locator("title", has_text="Forwarder_Adder"))
        expect(arc.locator("text").first).to_have_text(re.compile(r"[1-9][\d,.]*/s"))
        dead = page.locator(".arc", has=page.locator("title", has_text="dead_letter"))
        expect(dead.locator("text")).to_have_text(re.compile(r"[1-9][\d.K]* sent"))

        page.locator("#nav a", has_text="Tasks").click()
        second = page.locator(".card", has=page.get_by_role("heading", name="TaskManager 1"))
        expect(second.locator(".chip", has_text="Counter")).to_have_count(1)
        victim.kill()
        expect(second.locator("h3")).to_contain_text("down")
        expect(second.locator(".chip")).to_have_count(0)
        first = page.locator(".card", has=page.get_by_role("heading", name="TaskManager 0"))
        expect(first.locator(".chip.good")).to_have_count(6)

        page.locator("#nav a", has_text="History").click()
        expect(page.get_by_role("cell", name="TaskManager 1 fell silent")).to_be_visible()
        expect(page.get_by_role("cell", name=MOVE)).to_be_visible()

        page.goto(f"{address}#/lag/Counter")
        drawer = page.get_by_role("dialog", name="Counter")
        expect(drawer.get_by_role("row")).to_have_count(3)
        expect(drawer.locator("tbody .badge.good")).to_have_count(2)
    assert "the console failed" not in manager.log_file.read_text()


def test_letters_are_redriven_and_processors_paused_by_click(gated: Engine, tmp_path: Path) -> None:
    manager = gated.start_job_manager()
    gated.start_task_manager(0)
    gated.wait_until(all_run([0]))
    gated.write([*SHUT, *OPEN])
    gated.wait_until_done({gated.config.sink_topic: 5, gated.names.dead_letter("Gate"): 15})
    address = address_in(manager.log_file)
    with browser() as chromium, open_page(chromium, f"{address}#/letters") as page:
        why = page.get_by_role("table", name="Dead letters by processor, error and reason")
        expect(why.locator("tbody")).to_contain_text("the gate is shut")
        (tmp_path / "open").touch()
        page.get_by_role("button", name="Redrive 15").click()
        page.get_by_label("Token of the console").fill(TOKEN)
        page.get_by_role("button", name="Sign in", exact=True).click()
        ask = page.locator("#act")
        expect(ask).to_contain_text("15 dead letters (15 of Gate) go back to the topics")
        page.locator("#act-yes").click()
        expect(ask).to_contain_text("15 dead letters redriven.")
        page.locator("#act-no").click()
        expect(page.get_by_text("There is nothing to show.")).to_be_visible()
        gated.wait_until_done({gated.config.sink_topic: 20})
        page.get_by_label("Also redriven and purged").check()
        expect(page.get_by_role("cell", name="redriven")).to_have_count(15)
        page.get_by_role("link", name=re.compile(r"Gate:\d:\d+")).first.click()
        expect(page.locator("#drawer pre").nth(1)).to_have_text(re.compile(r"shut \d+"))
        page.keyboard.press("Escape")

        page.locator("#nav a", has_text="Records").click()
        page.get_by_label("Topic").select_option(gated.config.sink_topic)
        page.get_by_label("Values are").select_option("string")
        page.get_by_role("button", name="Read").click()
        expect(page.locator("main tbody tr")).to_have_count(20)

        page.locator("#nav a", has_text="State").click()
        page.get_by_label("Key", exact=True).fill("k3")
        page.get_by_role("button", name="Look up").click()
        expect(page.get_by_role("table", name="Entries").locator("code")).to_have_text(["k3", "2"])

        page.locator("#nav a", has_text="Graph").click()
        page.get_by_role("button", name="Pause all").click()
        page.locator("#act-yes").click()
        expect(page.locator("#summary")).to_contain_text("4 held")
        page.locator("#act-no").click()
        page.locator("#nav a", has_text="History").click()
        asked = "redrive of 15 dead letters: all processors, asked for by 127.0.0.1: done"
        expect(page.get_by_role("cell", name=asked)).to_be_visible()
    assert Counter(key for key, _ in gated.read(gated.config.sink_topic)) == Counter(
        key for key, _ in (*SHUT, *OPEN)
    )
    log = manager.log_file.read_text()
    assert re.search(r"an action of the console was done .*action=redrive address=127.0.0.1", log)
    assert TOKEN not in log
    assert "the console failed" not in log
