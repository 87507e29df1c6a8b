#!/usr/bin/env bash
# Makes .venv with the project and its developer tools. Running it again does nothing until
# pyproject.toml changes. PYTHON names the interpreter to use. With --browser it also provides a
# Chromium, which the tests of the report's pages need. Works with the bash 3.2 of macOS.
# CONFORMANCE_EXTRAS are the project's extras to install (default: dev); CONFORMANCE_INSTALL lists
# requirements to install over it, such as another release of a library, or a checkout. Both are
# separated by blanks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local name
  for name in ${PYTHON:-python3.13 python3.12 python3.11 python3.14 python3 python}; do
    if new_enough "$name"; then
      command -v "$name"
      return
    fi
  done
  echo "ci/setup.sh: no Python of at least 3.11 found; install one, or name it: PYTHON=/path/to/python" >&2
  exit 1
}

# Says what is missing; the tests that need it will fail.
see_to_chromium() {
  local finder=tests/browser/chromium.py
  if .venv/bin/python $finder >/dev/null 2>&1; then
    return
  fi
  if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "ci/setup.sh: installing Chromium"
    apt-get update -qq >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium >/dev/null 2>&1 || true
  fi
  .venv/bin/python $finder >/dev/null || true
}

# uv installs in a third of pip's time; if it is missing, pip installs it into .venv.
put() {
  if ! command -v uv >/dev/null 2>&1 && ! [ -x .venv/bin/uv ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check uv >/dev/null 2>&1 || true
  fi
  if command -v uv >/dev/null 2>&1; then
    uv pip install --quiet --python .venv/bin/python "$@"
  elif [ -x .venv/bin/uv ]; then
    .venv/bin/uv pip install --quiet --python .venv/bin/python "$@"
  else
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
  fi
}

# If Python may write no bytecode, as in many containers, each start would compile every module.
compile_modules() {
  .venv/bin/python -m compileall -q conformance || true
}

extras="${CONFORMANCE_EXTRAS-dev}"
install="${CONFORMANCE_INSTALL:-}"
# The folder is part of the stamp: a virtual environment cannot be moved.
stamp="$(cksum <pyproject.toml) $PWD [$extras] $install"
if [ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && new_enough .venv/bin/python; then
  compile_modules
  if [ "${1:-}" = --browser ]; then see_to_chromium; fi
  exit 0
fi

python="$(find_python)"
echo "ci/setup.sh: setting up .venv with $("$python" --version)"
rm -rf .venv
if command -v uv >/dev/null 2>&1; then
  uv venv --quiet --python "$python" .venv
elif ! "$python" -m venv .venv; then
  rm -rf .venv
  echo "ci/setup.sh: $python cannot make a virtual environment; install its venv module (python3-venv on Debian), or uv" >&2
  exit 1
fi
put -e ".${extras:+[$extras]}"
# shellcheck disable=SC2086  # several requirements
if [ -n "$install" ]; then put --upgrade $install; fi
case ",$extras," in
  *,cuda,*)
    # Two wheels contain mlx's library under one name: the one written last is used.
    cuda="$(.venv/bin/python -c 'from importlib.metadata import version as v; print("mlx-cuda-13==" + v("mlx"))')"
    put --force-reinstall --no-deps "$cuda"
    ;;
esac
compile_modules
echo "$stamp" >.venv/stamp
echo "ci/setup.sh: done in $SECONDS s"
if [ "${1:-}" = --browser ]; then see_to_chromium; fi
