#!/usr/bin/env bash
# Installs the project and the versions of requirements.lock into .venv, unless they are there.
# PYTHON=/path/to/python selects the interpreter; the default is the newest of the known names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What is imported here is compiled for all later processes. Packages in other folders do not count as
# installed, and pip installs into .venv only.
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX

readonly VENV=.venv
# Describes the content of the folder: "incomplete" during installation, then what was installed.
readonly STAMP=$VENV/kafka-pipeline-setup
readonly UNAVAILABLE=3
# For temporary files.
SCRATCH=$(mktemp -d)
readonly SCRATCH
# The process group that runs in the background, if there is one.
BACKGROUND=

# However this ends, nothing is left behind.
clean_up() {
  [[ -z $BACKGROUND ]] || kill -- "-$BACKGROUND" 2>/dev/null || true
  rm -rf "$SCRATCH"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "$@"
  exit "$UNAVAILABLE"
}

# Prints the Python version and the location of .venv, since environments cannot be moved.
identity() { printf '%s in %s\n' "$("$VENV/bin/python" --version)" "$PWD"; }

wanted_stamp() {
  identity
  # An archive of Spark's classes is for one class path, which launch.sh has a part in.
  cat locks/build.lock requirements.lock pyproject.toml streams/spark/launch.sh | cksum
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

can_make_venvs() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
  local candidate without_venv=
  for candidate in ${PYTHON:+"$PYTHON"} python3.14 python3.13 python3.12 python3.11 python3; do
    # This runs the candidate: a name on the PATH may be a placeholder for a missing version.
    is_new_enough "$candidate" || continue
    if can_make_venvs "$candidate"; then
      command -v "$candidate"
      return
    fi
    without_venv=${without_venv:-$candidate}
  done
  if [[ -n $without_venv ]]; then
    local version
    version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    fail "$without_venv has no venv module. Install it (Debian, Ubuntu:" \
      "\`apt install python$version-venv\`), then run this again."
  fi
  fail "Python 3.11 or later is needed, and none was found on the PATH. Install one (Debian," \
    "Ubuntu: \`apt install python3 python3-venv\`; macOS: \`brew install python@3.12\`)," \
    "or name one: PYTHON=/path/to/python $0"
}

# Runs a command in the background, in a process group of its own: Ctrl-C does not reach it.
in_background() {
  set -m
  "$@" &
  BACKGROUND=$!
  set +m
}

# Waits for the command in the background, and returns its exit code.
wait_for_background() {
  local status=0
  wait "$BACKGROUND" || status=$?
  BACKGROUND=
  return "$status"
}

# Runs a command, and shows its output only if it fails.
quietly() {
  local log=$SCRATCH/$RANDOM$RANDOM.log status=0
  "$@" >"$log" 2>&1 || status=$?
  if ((status != 0)); then
    tail -n 30 "$log" >&2
    say "failed: $*"
  fi
  return "$status"
}

# Runs pip. Python compiles a module when it is first imported. Pip would compile all of them, one
# after the other, and most are never imported.
run_pip() {
  local command=$1
  shift
  quietly "$VENV/bin/python" -m pip "$command" --disable-pip-version-check --no-input --no-deps "$@"
}

# Installs what a lock lists. A file with another digest is an error.
install_lock() { run_pip install --no-compile --require-hashes -r "$1"; }

# Installs requirements.lock. No wheel of pyspark is published, and to build it keeps one processor
# busy for as long as the other needs for all other packages.
install_requirements() {
  local parts=$SCRATCH/parts status=0
  mkdir "$parts"
  sed -n '/^pyspark==/,/[^\\]$/p' requirements.lock >"$parts/build.txt"
  sed '/^pyspark==/,/[^\\]$/d' requirements.lock >"$parts/install.txt"
  # Without isolation, the locked setuptools builds it. With PEP 517, pip caches the wheel. It is
  # 420 MB of jars, and to compress those again takes 15 s.
  in_background run_pip wheel --require-hashes --use-pep517 --no-build-isolation \
    --config-settings=--build-option=--compression=stored -r "$parts/build.txt" -w "$parts"
  install_lock "$parts/install.txt" || status=$?
  wait_for_background || status=$?
  if ((status == 0)); then
    run_pip install --no-compile --no-index --find-links "$parts" pyspark || status=$?
  fi
  rm -rf "$parts"
  return "$status"
}

# Installs the project. On another processor, Spark's classes are archived, which needs it as well,
# but finds it in this folder.
install_project() {
  local status=0
  PYTHONPATH=. in_background quietly "$VENV/bin/python" -m kafka_pipeline.streams.sql.class_archive
  run_pip install --no-compile --no-build-isolation -e . || status=$?
  wait_for_background || say "going on without an archive of Spark's classes"
  return "$status"
}

# Waits until no other set-up is at work in this folder. The lock is that of an open file, which this
# script and the processes that it starts have until they end.
take_turn() {
  exec 9<requirements.lock
  "$1" -c '
import fcntl, signal, sys

signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("another set-up is at work in this folder; waiting for it…", file=sys.stderr)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError:
    pass  # NFS locks no file that is only read'
}

is_done() { [[ -f $STAMP && $(<"$STAMP") == "$(wanted_stamp 2>/dev/null)" ]]; }

main() {
  local stamp='' python
  if is_done; then return; fi
  python=$(find_python)
  PYTHONPATH=. "$python" -B -c '
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.process.java import find_java

run_command(find_java)()'
  take_turn "$python"
  if is_done; then return; fi
  [[ ! -f $STAMP ]] || stamp=$(<"$STAMP")
  if [[ -e $VENV && -z $stamp ]]; then
    fail "$PWD/$VENV is there, but not made by this script. Move it away, then run this again."
  fi

  # Start over if pip was interrupted, or if the environment belongs to another Python or folder.
  if [[ ${stamp%%$'\n'*} != "$(identity 2>/dev/null)" ]]; then
    rm -rf "$VENV"
  fi
  mkdir -p "$VENV"
  echo incomplete >"$STAMP"
  if [[ ! -x $VENV/bin/pip ]]; then
    say "making $VENV with $("$python" --version)…"
    quietly "$python" -m venv "$VENV"
  fi
  say "installing the packages of requirements.lock, 1.4 GB, some minutes the first time…"
  install_lock locks/build.lock
  install_requirements
  say "installing the project, and making an archive of Spark's classes, so that Spark starts in" \
    "half the time…"
  install_project
  wanted_stamp >"$STAMP.part"
  mv "$STAMP.part" "$STAMP"
  say "done. Next: source $VENV/bin/activate, then \`pipeline init my_job\`; or ./quickstart.sh for" \
    "a job with data. docs/README.md leads on."
}

main
