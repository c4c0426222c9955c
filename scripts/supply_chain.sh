#!/usr/bin/env bash
# Says of what the project consists, and whether a package of it is known to be vulnerable.
# Needs the network and .venv.
#
#   scripts/supply_chain.sh sbom FILE    writes a CycloneDX list of what the daemons and the local
#                                        broker consist of: packages and jars, with digests
#   scripts/supply_chain.sh scan         asks the advisories of PyPI for all that is locked; fails if
#                                        there is one, and if a package could not be looked up
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly WRONG_ARGUMENT=2

SCRATCH=$(mktemp -d)
readonly SCRATCH
trap 'rm -rf "$SCRATCH"' EXIT

install_tools() {
  .venv/bin/python -m venv "$SCRATCH"
  "$SCRATCH/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps --require-hashes -r locks/tools.lock
}

sbom() {
  # The tool warns that a list of requirements does not say which package needs which.
  "$SCRATCH/bin/python" -W ignore::UserWarning -m cyclonedx_py requirements locks/daemons.lock \
    --pyproject pyproject.toml --output-reproducible --output-file "$SCRATCH/sbom.json"
  .venv/bin/python -m scripts.sbom_jars "$SCRATCH/sbom.json"
  "$SCRATCH/bin/python" - "$SCRATCH/sbom.json" <<'END'
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text())
sys.exit(wrong and f"the list is not valid: {wrong}")
END
  cp "$SCRATCH/sbom.json" "$1"
}

scan() {
  local lock status=0
  for lock in requirements.lock locks/*.lock; do
    echo "$lock"
    "$SCRATCH/bin/pip-audit" --strict --disable-pip --require-hashes --progress-spinner off \
      --requirement "$lock" || status=1
  done
  return "$status"
}

if [[ $# == 2 && $1 == sbom ]] || [[ $# == 1 && $1 == scan ]]; then
  install_tools
  "$@"
else
  sed -n '5,9s/^#   //p' "${BASH_SOURCE[0]}" >&2
  exit "$WRONG_ARGUMENT"
fi
