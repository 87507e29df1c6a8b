#!/usr/bin/env bash
# Compares a library's newest release with its main branch: bash ci/nightly.sh LIBRARY URL [options
# of conformance run], for example mlx-lm git+https://github.com/ml-explore/mlx-lm. Known defects
# are ignored: only the difference counts, and it goes to the job's summary. Exit code 1 if the main
# branch is worse, or if the newest release is worse than the night before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -lt 2 ]; then
  echo "usage: bash ci/nightly.sh LIBRARY URL [options of conformance run]" >&2
  exit 2
fi
library="$1"
url="$2"
shift 2
mkdir -p results baseline
worse=0

# Exit code 1, an unexpected verdict, is no reason to stop; 2, an error, is one.
run() {
  CONFORMANCE_EXTRAS="" CONFORMANCE_INSTALL="$1" bash ci/setup.sh
  local code=0
  .venv/bin/conformance run --engine "${library//-/_}*" --tier full --no-expectations --quiet \
    --json "results/$2.jsonl" "${@:3}" >"results/$2.txt" || code=$?
  tail -n 1 "results/$2.txt"
  if [ "$code" -gt 1 ]; then
    exit "$code"
  fi
}

compare() {
  local code=0
  .venv/bin/conformance diff "$1" "$2" --markdown results/diff.md || code=$?
  if [ "$code" -gt 1 ]; then
    exit "$code"
  fi
  { echo "## $library: $3"; cat results/diff.md; } >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
  if [ "$code" -eq 1 ]; then worse=1; fi
}

run "$library" newest "$@"
if [ -s "baseline/$library.jsonl" ]; then
  compare "baseline/$library.jsonl" results/newest.jsonl "the newest release, since the last night"
fi
cp results/newest.jsonl "baseline/$library.jsonl"
run "$url" main "$@"
compare results/newest.jsonl results/main.jsonl "the main branch, against the newest release"
exit "$worse"
