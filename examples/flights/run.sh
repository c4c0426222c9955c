#!/usr/bin/env bash
# Runs the example on this machine, kills a TaskManager half-way, and compares every result with
# pandas. examples/flights/run.sh --help shows the options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

./scripts/setup.sh
exec .venv/bin/python -m examples.flights "$@"
