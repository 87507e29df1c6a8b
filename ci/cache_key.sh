#!/usr/bin/env bash
# The cache key of a job's .venv, as output `key`. It depends on what .venv is made from, including
# Python's own path, and on the week, so that new releases of its packages come in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-python3}"
made_from="$("$python" -VV; command -v "$python"; cat pyproject.toml; date -u +%G-%V; echo "${CONFORMANCE_EXTRAS-dev} $PWD")"
key="venv-$(uname -sm | tr ' ' -)-$(echo "$made_from" | cksum | cut -d ' ' -f 1)"
echo "key=$key" >>"${GITHUB_OUTPUT:-/dev/stdout}"
