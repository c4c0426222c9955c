"""All queries in one table, for docs/performance.md: rates, CPU time and ratios to the peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from benchmarks.report import NO_FIGURE, Rounds, aligned, ratios, summarize

RATE, CPU = "records_per_s", "cpu_s_per_million"
FAILED = "failed"


def summary(
    queries: Sequence[str],
    contenders: Mapping[str, Set[str]],
    figures: Mapping[tuple[str, str], Rounds],
) -> str:
    """Return a table in Markdown with a row for each query, and medians of all rounds.

    `contenders` has the queries that each one knows, by its title. The others are compared with the
    first one. `figures` are by query and title. A contender that failed in all rounds is named.
    """
    ours = next(iter(contenders))
    head = ["query"]
    for title in contenders:
        head += [f"{title}: events/s", "CPU s per million"]
        if title != ours:
            head.append("ours ÷ it")
    lines = [head]
    for query in queries:
        cells = [query]
        for title, known in contenders.items():
            rounds = figures.get((query, title), ())
            found = summarize(rounds)
            if found:
                cells += [f"{found[RATE].median:,.0f}", f"{found[CPU].median:,.1f}"]
            else:
                cells += [FAILED if query in known else NO_FIGURE, NO_FIGURE]
            if title != ours:
                ratio = ratios(figures.get((query, ours), ()), rounds).get(RATE)
                cells.append(NO_FIGURE if ratio is None else f"{ratio:.2f}")
        lines.append(cells)
    return aligned(lines)
