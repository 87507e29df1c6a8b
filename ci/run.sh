#!/usr/bin/env bash
# The main job: sets up, then runs every family of mlx-lm and mlx-vlm in every scenario. Options
# are those of `conformance run`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Many containers forbid bytecode; then each process would compile all that it imports.
unset PYTHONDONTWRITEBYTECODE
bash ci/setup.sh
exec .venv/bin/conformance run "$@"
