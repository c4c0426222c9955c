#!/usr/bin/env bash
# Checks what every change must pass: lint, format, types, tests. With --all, also the long tests.
# Other arguments go to pytest, too: ./test.sh tests/unit -k java
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Otherwise, each of some hundred processes that the tests start would compile the engine again.
unset PYTHONDONTWRITEBYTECODE

./scripts/setup.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
# While mypy checks types on one core, the other compiles the tests: otherwise, each of the four
# processes that run them would compile all of them. The run itself reports what does not compile.
.venv/bin/mypy &
mypy=$!
.venv/bin/pytest --collect-only "$@" &>/dev/null || true
wait "$mypy"
# Tests of real processes wait a good part of their time, so four files at a time; -n 0 runs one after the
# other. They come first (tests/scheduling.py): with them at the end, one worker would be the last for long.
# With another worker in the place of one that was lost, pytest-xdist would wait forever.
exec .venv/bin/pytest -rfEs -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --run-limit-s 3600 "$@"
