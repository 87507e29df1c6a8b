#!/usr/bin/env bash
# One shard of the suite under pytest, on all cores: bash ci/shard.sh K/N [options of pytest].
# Results go to results/, which ci/summary.sh joins. CONFORMANCE_ENGINE is a glob of engines
# (default: mlx_*); CONFORMANCE_OPTIONS has more options of pytest, separated by blanks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -eq 0 ]; then
  echo "usage: bash ci/shard.sh K/N [options of pytest]" >&2
  exit 2
fi
shard="$1"
shift
bash ci/setup.sh
mkdir -p results
# Remove the results of an earlier run.
rm -f "results/${shard%/*}-of-${shard#*/}.jsonl"{,.partial}

# Output of models and libraries must not be taken for commands to GitHub.
if [ "${GITHUB_ACTIONS:-}" = true ]; then
  token="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
  echo "::stop-commands::$token"
  trap 'echo "::$token::"' EXIT
fi
# shellcheck disable=SC2086  # several options
.venv/bin/python -m pytest --pyargs conformance.suite -q -n auto \
  --conformance-engine "${CONFORMANCE_ENGINE:-mlx_*}" \
  --conformance-shard "$shard" \
  --conformance-json "results/${shard%/*}-of-${shard#*/}.jsonl" \
  ${CONFORMANCE_OPTIONS:-} "$@"
