#!/usr/bin/env bash
# The main job: sets up, then runs every family of mlx-lm and mlx-vlm in every scenario. Options
# are those of `conformance run`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash ci/setup.sh
exec .venv/bin/conformance run "$@"
