#!/usr/bin/env bash
# Makes .venv with the project and its developer tools in it. Run again, it does nothing until
# pyproject.toml changes. PYTHON names the interpreter to use. Works with the bash 3.2 of macOS.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local name
  for name in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
    if new_enough "$name"; then
      command -v "$name"
      return
    fi
  done
  echo "ci/setup.sh: no Python of at least 3.11 found; install one, or name it: PYTHON=/path/to/python" >&2
  exit 1
}

# The folder is part of the stamp: a virtual environment cannot be moved.
stamp="$(cksum <pyproject.toml) $PWD"
if [ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && new_enough .venv/bin/python; then
  exit 0
fi

python="$(find_python)"
echo "ci/setup.sh: setting up .venv with $("$python" --version)"
rm -rf .venv
if command -v uv >/dev/null 2>&1; then
  uv venv --quiet --python "$python" .venv
  uv pip install --quiet --python .venv/bin/python -e '.[dev]'
else
  if ! "$python" -m venv .venv; then
    rm -rf .venv
    echo "ci/setup.sh: $python cannot make a virtual environment; install its venv module (python3-venv on Debian), or uv" >&2
    exit 1
  fi
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
fi
echo "$stamp" >.venv/stamp
echo "ci/setup.sh: done in $SECONDS s"
