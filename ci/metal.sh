#!/usr/bin/env bash
# The default tier on the GPU of a Mac: bash ci/metal.sh [options of conformance run]. It sets up .venv
# and writes to results/metal (or $CONFORMANCE_RESULTS) results.jsonl and summary.md, one page: please
# send both. The page also lists which of the kernels that only Metal has were called (docs/gpu.md).
# Exit code: 0 if all is as expected, 1 if not, 2 if the run could not be completed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "$(uname -s)" != Darwin ] || [ "$(uname -m)" != arm64 ]; then
  echo "ci/metal.sh: this needs a Mac with Apple Silicon; this machine is $(uname -s) $(uname -m)" >&2
  exit 2
fi
bash ci/setup.sh
folder="${CONFORMANCE_RESULTS:-results/metal}"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
export METAL_REACHED="$folder/reached.txt"
rm -f "$METAL_REACHED"

# No results are reused: a case that is not run calls no kernel. The plugin is found in the current
# folder.
code=0
(cd ci && ../.venv/bin/conformance run --fresh --tier default --plugin metal_reached \
  --json "$folder/results.jsonl" "$@") || code=$?
if [ "$code" -gt 1 ]; then
  echo "ci/metal.sh: the run was not completed (exit code $code)" >&2
  exit 2
fi
.venv/bin/python ci/device_summary.py --reached "$METAL_REACHED" "$folder/results.jsonl" \
  >"$folder/summary.md"
echo "ci/metal.sh: please send $folder/summary.md and $folder/results.jsonl"
exit "$code"
