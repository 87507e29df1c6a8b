#!/usr/bin/env bash
# Keeps the joined results of ci/summary.sh as the baseline for later runs, and the newest results of
# each pair of releases for the status site.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -s build/all.jsonl ]; then
  mkdir -p baseline/releases
  cp build/all.jsonl baseline/all.jsonl
  # For example mlx-lm-0.32.2+mlx-vlm-0.7.10.
  libraries='"mlx-(lm|vlm)":"[^"]*"'
  releases="$(grep -oE "$libraries" build/all.jsonl | sort -u | tr -d '"' | tr ':/' '--' | paste -sd+)"
  cp build/all.jsonl "baseline/releases/${releases:-unknown}.jsonl"
fi
