#!/usr/bin/env bash
# The default tier on all NVIDIA GPUs of this machine, in float32, bfloat16 and float16:
# bash ci/cuda.sh [options of conformance run]. It sets up .venv with mlx's CUDA library, and writes to
# results/cuda (or $CONFORMANCE_RESULTS) one result file for each dtype and summary.md, one page.
# Exit code: 0 if all is as expected, 1 if not, 2 if a run could not be completed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v nvidia-smi >/dev/null 2>&1 || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "ci/cuda.sh: this machine has no NVIDIA GPU that its driver knows (nvidia-smi -L)" >&2
  exit 2
fi
CONFORMANCE_EXTRAS="${CONFORMANCE_EXTRAS:-dev,cuda}" bash ci/setup.sh
# TF32 multiplies float32 with 10 bits of mantissa: its noise is as large as float16's and hides
# defects that float32 shows (docs/numerics.md).
export MLX_ENABLE_TF32=0
folder="${CONFORMANCE_RESULTS:-results/cuda}"
mkdir -p "$folder"

worst=0
files=()
for dtype in float32 bfloat16 float16; do
  code=0
  .venv/bin/conformance run --tier default --devices all --dtype "$dtype" \
    --json "$folder/$dtype.jsonl" "$@" || code=$?
  if [ "$code" -gt 1 ]; then
    echo "ci/cuda.sh: the run in $dtype was not completed (exit code $code)" >&2
    code=2
  else
    files+=("$folder/$dtype.jsonl")
  fi
  if [ "$code" -gt "$worst" ]; then worst="$code"; fi
done
if [ "${#files[@]}" -gt 0 ]; then
  .venv/bin/python ci/device_summary.py "${files[@]}" >"$folder/summary.md"
  echo "ci/cuda.sh: $folder/summary.md"
fi
exit "$worst"
