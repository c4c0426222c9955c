#!/usr/bin/env bash
# Renews the locks: the exact versions of packages that pip installs, and the digests of their files
# for all platforms and versions of Python. Then the digests of the jars that each ivy.xml asks for.
# Needs the network and .venv.
#
#   scripts/lock.sh               locks what the requirements ask for, and keeps other versions
#   scripts/lock.sh --upgrade     locks the newest versions that the requirements allow
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SCRATCH=$(mktemp -d)
readonly SCRATCH
trap 'rm -rf "$SCRATCH"' EXIT

# Writes the lock $1 of the requirements in the file $2; what follows are options of uv.
lock() {
  local target=$1 requirements=$2
  shift 2
  "$SCRATCH/bin/uv" pip compile "$requirements" --quiet --output-file "$target" \
    --universal --python-version 3.11 --python "$SCRATCH/bin/python" --generate-hashes \
    --no-annotate --no-emit-index-url --no-emit-find-links \
    --custom-compile-command ./scripts/lock.sh "$@"
  echo "$target"
}

# Writes the lock $1 of the requirements that follow. What begins with a dash is an option of uv.
lock_packages() {
  local target=$1 argument packages=() options=()
  shift
  for argument in "$@"; do
    if [[ $argument == -* ]]; then options+=("$argument"); else packages+=("$argument"); fi
  done
  printf '%s\n' "${packages[@]}" >"$SCRATCH/requirements.in"
  lock "$target" "$SCRATCH/requirements.in" ${options[@]+"${options[@]}"}
}

.venv/bin/python -m venv "$SCRATCH"
"$SCRATCH/bin/python" -m pip install --quiet --disable-pip-version-check \
  --no-deps --require-hashes -r locks/tools.lock

quix=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' benchmarks/peers/quix.py)
flink=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' benchmarks/peers/flink_sql.py)
lock requirements.lock pyproject.toml --extra dev "$@"
# The daemons have the versions that were tested.
lock locks/daemons.lock pyproject.toml --extra console --constraints requirements.lock "$@"
# So has whoever writes a pipeline in a project of their own.
lock locks/users.lock pyproject.toml --extra console --extra secure --extra test \
  --constraints requirements.lock "$@"
lock_packages locks/build.lock setuptools "$@"
lock_packages locks/tools.lock cyclonedx-bom pip-audit uv "$@"
# Only its schemas are read.
lock_packages locks/kubernetes.lock kubernetes-validate --no-deps "$@"
lock_packages locks/quix.lock "quixstreams==$quix" "$@"
lock_packages locks/flink.lock "apache-flink==$flink" "$@"
.venv/bin/python -m scripts.jar_digests
