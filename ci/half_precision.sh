#!/usr/bin/env bash
# The suite in bfloat16, on one family of each kind of cache: bash ci/half_precision.sh [options of
# pytest]. There states and caches may have other dtypes than the weights, and a batch must keep them.
# Results go to results/, which ci/summary.sh 1 joins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash ci/setup.sh
families="$(.venv/bin/python - <<'PYTHON'
from conformance.run.registry import build_registry

quick = {f.name for f in build_registry().families.values() if f.facts.quick}
print(*(f"--conformance-family={name}" for name in sorted(quick)))
PYTHON
)"
# shellcheck disable=SC2086  # several options
exec bash ci/shard.sh 1/1 --conformance-dtype bfloat16 --conformance-tier=default $families "$@"
