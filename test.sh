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
# mypy checks types on one core. Meanwhile the other compiles the tests: otherwise, each of the four
# processes that run them would compile all of them. The run itself reports what does not compile.
.venv/bin/mypy &
mypy=$!
# In the background, it ignores Ctrl-C, and pytest, which handles it, does not end this script.
trap 'kill "$mypy" 2>/dev/null || true' EXIT
trap 'exit 130' INT
.venv/bin/pytest --collect-only "$@" &>/dev/null || true
# Hypothesis writes a table of all characters when it first needs one, which takes seconds, and each of
# those processes would make its own.
.venv/bin/python -c 'from hypothesis import strategies; strategies.text().validate()'
# Without its cache, mypy takes a minute more, and tests need not wait for it.
kill -0 "$mypy" 2>/dev/null || wait "$mypy"
# Tests of real processes wait a good part of their time, so four files at a time; -n 0 runs one after the
# other. They come first (tests/scheduling.py): with them at the end, one worker would be the last for long.
# With another worker in the place of one that was lost, pytest-xdist would wait forever.
status=0
.venv/bin/pytest -rfEs -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --run-limit-s 3600 "$@" || status=$?
wait "$mypy" || {
  status=$?
  echo "mypy has found errors: see above" >&2
}
exit "$status"
