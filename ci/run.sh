#!/usr/bin/env bash
# The main job: sets up, then runs every family of mlx-lm and mlx-vlm. Options are those of
# `conformance run`; without one that chooses cases, each family plays the workload, and its media
# beside text, in which most defects show.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Many containers forbid bytecode; each process would then compile every module that it imports.
unset PYTHONDONTWRITEBYTECODE
bash ci/setup.sh
case " $*" in
  *" --tier"* | *" --family"* | *" --scenario"* | *" --model"*) ;;
  *)
    echo "ci/run.sh: the busy server and mixed media of every family; --tier default plays the ladder, too"
    set -- --tier quick --scenario traffic --scenario mixed_modality "$@"
    ;;
esac
exec .venv/bin/conformance run "$@"
