#!/usr/bin/env bash
# Runs a real pipeline over 336,776 real records on this machine, kills a TaskManager half-way, and
# checks every result. ./quickstart.sh --help shows the options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

./scripts/setup.sh
exec .venv/bin/python -m kafka_pipeline.admin.quickstart "$@"
