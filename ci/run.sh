#!/usr/bin/env bash
# The main job: sets up, then runs every family of mlx-lm and mlx-vlm in every scenario. Options
# are those of `conformance run`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Many containers forbid bytecode; each process would then compile every module that it imports.
unset PYTHONDONTWRITEBYTECODE
bash ci/setup.sh
exec .venv/bin/conformance run "$@"
