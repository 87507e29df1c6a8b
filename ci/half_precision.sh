#!/usr/bin/env bash
# The suite in bfloat16, on one family of each kind of cache: bash ci/half_precision.sh [options of
# pytest]. States and caches may have other dtypes than the weights there, and a batch must keep
# them. Results go to results/, which ci/summary.sh 1 joins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash ci/setup.sh
families="$(.venv/bin/python ci/kinds.py)"
# shellcheck disable=SC2086  # several options
exec bash ci/shard.sh 1/1 --conformance-dtype bfloat16 --conformance-tier=default $families "$@"
