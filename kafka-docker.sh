#!/usr/bin/env bash
# How many Kafka brokers to run in Docker, 1 to 7:
NUM_BROKER=1

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly MAX_BROKERS=7
readonly WRONG_ARGUMENT=2
readonly UNAVAILABLE=3

usage() {
  cat <<END
Usage: ./kafka-docker.sh start [-bn=N] | stop [--delete-data] | status

Runs Apache Kafka in Docker, from port 9092 on, one port per broker.

  start                       start the brokers and wait until they serve clients
  stop                        stop them and keep what their topics hold
  status                      show them; exit code 3 if none runs

  -bn=N, --broker_number=N    how many brokers, 1 to $MAX_BROKERS ($NUM_BROKER if not given,
                              set in the third line of this script)
  --delete-data               with stop: delete all topics and what is in them
  -h, --help                  show this

KAFKA_ADVERTISED_HOST         the IP address of this host that clients use and that the ports are
                              open on (127.0.0.1 if not set: reachable from this host only)
KAFKA_IMAGE                   the image, for example by its digest: apache/kafka@sha256:…
                              (apache/kafka:4.2.1 if not set)
END
}

fail() {
  local status=$1
  shift
  printf '%s\n' "$*" >&2
  exit "$status"
}

require_docker() {
  command -v docker >/dev/null ||
    fail "$UNAVAILABLE" "There is no docker command. Install Docker Engine or Docker Desktop, or" \
      "run Kafka without it: \`pipeline broker start\`"
  docker compose version >/dev/null 2>&1 ||
    fail "$UNAVAILABLE" "This docker has no compose. Install its plugin (docker-compose-plugin)."
  docker info >/dev/null 2>&1 ||
    fail "$UNAVAILABLE" "The Docker engine does not answer. Start it, and see to it that you may" \
      "use it (\`docker info\` says what is wrong)."
}

# The project's name stands here too, so that COMPOSE_PROJECT_NAME cannot lead to other containers.
compose() {
  docker compose --project-name kafka-pipeline --file docker-compose.yaml --profile cluster "$@"
}

start() {
  local number wanted=() surplus=() servers=''
  for ((number = 1; number <= MAX_BROKERS; number++)); do
    if ((number <= NUM_BROKER)); then
      wanted+=("broker-$number")
      servers+=",$KAFKA_ADVERTISED_HOST:$((9091 + number))"
    else
      surplus+=("broker-$number")
    fi
  done
  export KAFKA_REPLICAS=$((NUM_BROKER < 3 ? NUM_BROKER : 3))
  export KAFKA_IN_SYNC_REPLICAS=$((NUM_BROKER < 3 ? 1 : 2))
  # Those of an earlier start with more brokers. The count guards bash 3, which macOS has, from
  # taking an empty list for an unset variable.
  if ((${#surplus[@]} > 0)) && [[ -n $(compose ps --all --quiet "${surplus[@]}") ]]; then
    compose rm --stop --force "${surplus[@]}"
  fi
  compose up --detach --wait "${wanted[@]}"
  echo "Kafka runs at ${servers#,}"
}

stop() {
  if [[ -n $DELETE_DATA ]]; then
    compose down --volumes
  else
    compose down
  fi
}

status() {
  compose ps
  [[ -n $(compose ps --status running --quiet) ]] || exit "$UNAVAILABLE"
}

COMMAND='' DELETE_DATA=''
for argument in "$@"; do
  case $argument in
    -h | --help)
      usage
      exit
      ;;
    start | stop | status)
      [[ -z $COMMAND ]] || fail "$WRONG_ARGUMENT" "Either $COMMAND or $argument, not both."
      COMMAND=$argument
      ;;
    -bn=* | --broker_number=*) NUM_BROKER=${argument#*=} ;;
    --delete-data) DELETE_DATA=yes ;;
    *) fail "$WRONG_ARGUMENT" "Unknown argument: $argument. See ./kafka-docker.sh --help" ;;
  esac
done

[[ -n $COMMAND ]] || {
  usage >&2
  exit "$WRONG_ARGUMENT"
}
[[ $NUM_BROKER =~ ^[1-$MAX_BROKERS]$ ]] ||
  fail "$WRONG_ARGUMENT" "The number of brokers must be 1 to $MAX_BROKERS, not '$NUM_BROKER'."
[[ -z $DELETE_DATA || $COMMAND == stop ]] ||
  fail "$WRONG_ARGUMENT" "--delete-data goes with stop only."

KAFKA_ADVERTISED_HOST=${KAFKA_ADVERTISED_HOST:-127.0.0.1}
[[ $KAFKA_ADVERTISED_HOST != localhost ]] || KAFKA_ADVERTISED_HOST=127.0.0.1
[[ $KAFKA_ADVERTISED_HOST =~ ^([0-9]{1,3}\.){3}[0-9]{1,3}$ ]] ||
  fail "$WRONG_ARGUMENT" "KAFKA_ADVERTISED_HOST must be an IPv4 address of this host, not" \
    "'$KAFKA_ADVERTISED_HOST': the ports are opened on it."
export KAFKA_ADVERTISED_HOST

require_docker
"$COMMAND"
