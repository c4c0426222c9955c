"""Reads Markdown pages: their fenced blocks, their links and their anchors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
_EXCUSE = re.compile(r"^\s*<!-- not run: (?P<reason>\S.*?) -->\s*$")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)\s*$")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)\)")
_HEREDOC = re.compile(r"^cat > (?P<name>\S+) <<'EOF'$")
_FILE = re.compile(
    r"`((?:admin|benchmarks|common|deploy|examples|jobmanager|scripts|streams|taskmanager|tests)"
    r"/[\w/*.-]*)`"
)
_SEPARATORS = {"&&", "||", "|", ";", "&"}
_REDIRECTIONS = {">", ">>", "<"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `line` is that of its first line, from 1; `excuse` says why it is not run."""

    page: Path
    line: int
    language: str
    text: str
    excuse: str

    def __str__(self) -> str:
        """Return where the block is, in the form that editors can jump to."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Example:
    """A shell line: its commands as lists of words, what it prints, the files that it writes."""

    commands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...] = ()
    heredoc: tuple[str, str] | None = None


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page in their order, without the indentation of their fence."""
    excuse, start, indent, language = "", 0, "", ""
    inside: list[str] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if inside is not None:
            if line.strip() == "```":
                yield Block(page, start, language, "\n".join(inside) + "\n", excuse)
                inside, excuse = None, ""
            else:
                inside.append(line.removeprefix(indent))
        elif fence := _FENCE.match(line):
            inside, start = [], number + 1
            indent, language = fence["indent"], fence["language"]
        elif found := _EXCUSE.match(line):
            excuse = found["reason"]
        elif line.strip():
            excuse = ""


def prose(page: Path) -> list[tuple[int, str]]:
    """Return the numbered lines of a page that are not in a fenced block."""
    found, inside = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip().startswith("```"):
            inside = not inside
        elif not inside:
            found.append((number, line))
    return found


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    names = set()
    for _, line in prose(page):
        heading = _HEADING.match(line)
        if heading:
            slug = _slug(heading["title"])
            count = found.get(slug, 0)
            found[slug] = count + 1
            names.add(f"{slug}-{count}" if count else slug)
    return names


def headings(page: Path) -> set[str]:
    """Return the titles of a page's headings, without markup."""
    matches = (_HEADING.match(line) for _, line in prose(page))
    return {_plain(match["title"]) for match in matches if match}


def broken_links(page: Path) -> list[str]:
    """Return what is wrong with the page's links to other pages, files and anchors."""
    problems = []
    text = "\n".join(re.sub(r"`[^`]*`", "``", line) for _, line in prose(page))
    for match in _LINK.finditer(text):
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists():
            problems.append(f"{page}: {target}: there is no such file")
        elif anchor and anchor not in anchors(path):
            problems.append(f"{page}: {target}: there is no such heading")
    return problems


def named_files(page: Path) -> set[str]:
    """Return the files of the project that a page names in code spans; they may hold a `*`."""
    return {name for _, line in prose(page) for name in _FILE.findall(line)}


def linked_pages(page: Path) -> set[Path]:
    """Return the pages that a page links to."""
    text = "\n".join(line for _, line in prose(page))
    targets = (match["target"].partition("#")[0] for match in _LINK.finditer(text))
    return {(page.parent / target).resolve() for target in targets if target.endswith(".md")}


def examples(block: Block) -> list[Example]:
    """Return the shell lines of a block; in a `console` block, these are the ones behind `$ `."""
    lines = block.text.replace("\\\n", " ").splitlines()
    found: list[Example] = []
    while lines:
        line = lines.pop(0)
        if block.language == "console":
            if not line.startswith("$ "):
                raise ValueError(f"{block}: a console block must begin with a command: {line!r}")
            output = []
            while lines and not lines[0].startswith("$ "):
                output.append(lines.pop(0))
            found.append(Example(_commands(line.removeprefix("$ ")), tuple(output)))
        elif heredoc := _HEREDOC.match(line):
            end = lines.index("EOF")
            found.append(Example((), heredoc=(heredoc["name"], "\n".join(lines[:end]) + "\n")))
            del lines[: end + 1]
        else:
            found.append(Example(_commands(line)))
    return found


def _commands(line: str) -> tuple[tuple[str, ...], ...]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if word in _SEPARATORS:
            commands.append([])
        elif word in _REDIRECTIONS:
            next(words)
        else:
            commands[-1].append(word)
    return tuple(tuple(command) for command in commands if command)


def _plain(title: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")


def _slug(title: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", _plain(title).lower())
    return kept.replace(" ", "-")
