#!/usr/bin/env bash
# The key under which a job's .venv is kept, as output `key`: what it is made from, and the week, so
# that new releases of what it holds come in. Python's own path is part of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-python3}"
made_from="$("$python" -VV; command -v "$python"; cat pyproject.toml; date -u +%G-%V; echo "${CONFORMANCE_EXTRAS-dev} $PWD")"
key="venv-$(uname -sm | tr ' ' -)-$(echo "$made_from" | cksum | cut -d ' ' -f 1)"
echo "key=$key" >>"${GITHUB_OUTPUT:-/dev/stdout}"
