#!/usr/bin/env bash
# The main job: sets up, then runs every family of mlx-lm and mlx-vlm. Options are those of
# `conformance run`, which then decide everything; without any, each family plays the scenarios in
# which most known defects of single models show.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Many containers forbid bytecode; each process would then compile every module that it imports.
unset PYTHONDONTWRITEBYTECODE
bash ci/setup.sh
if [ $# -eq 0 ]; then
  echo "ci/run.sh: a few scenarios of every family; bash ci/run.sh --tier default plays the whole ladder"
  set -- --tier quick
  for scenario in repeat images_together mixed_modality quantized traffic traffic_options; do
    set -- "$@" --scenario "$scenario"
  done
fi
exec .venv/bin/conformance run "$@"
