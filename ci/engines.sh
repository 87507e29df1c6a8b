#!/usr/bin/env bash
# Tests the engines of other projects. For each package below engines/ it makes an environment with
# the versions pinned in its requirements.txt, adds this project and the package, and runs the
# package's tests. If a package can't be installed, it says so in one sentence and goes on; it fails
# only if a test does. Arguments are names of packages (default: all). ENGINES_CACHE is the folder
# that keeps environments, ENGINES_SECONDS the limit for one installation and for one run of tests
# (default 900).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
root=$PWD
cache=${ENGINES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mlx-conformance/engines}
seconds=${ENGINES_SECONDS:-900}
failures=0

bounded() {
  if command -v timeout >/dev/null 2>&1; then timeout "$seconds" "$@"; else "$@"; fi
}

# This project's requirements except mlx and the libraries, whose versions the package chooses.
own_needs() {
  "$1" - <<'PYTHON'
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(need for need in project["dependencies"] if not need.startswith("mlx")))
PYTHON
}

install() {
  local package="$1" environment="$2" python="$2/bin/python"
  own_needs "${PYTHON:-python3}" >"$environment.needs" || return
  local wanted=(-r "engines/$package/requirements.txt" -r "$environment.needs")
  local alone=(--no-deps -r "engines/$package/engine.txt")
  if command -v uv >/dev/null 2>&1; then
    bounded uv venv --quiet --allow-existing --python "${PYTHON:-python3}" "$environment" || return
    bounded uv pip install --quiet --python "$python" "${wanted[@]}" || return
    bounded uv pip install --quiet --python "$python" "${alone[@]}" || return
    bounded uv pip install --quiet --python "$python" --no-deps "$root" "engines/$package" || return
  else
    "${PYTHON:-python3}" -m venv "$environment" || return
    bounded "$python" -m pip install --quiet "${wanted[@]}" || return
    bounded "$python" -m pip install --quiet "${alone[@]}" || return
    bounded "$python" -m pip install --quiet --no-deps "$root" "./engines/$package" || return
  fi
}

play() {
  local package="$1" environment="$cache/$1" start=$SECONDS
  mkdir -p "$cache"
  if ! install "$package" "$environment" >"$environment.log" 2>&1; then
    echo "ci/engines.sh: $package can't be installed here: $(grep -v '^ *$' "$environment.log" | tail -1)"
    return
  fi
  if bounded "$environment/bin/python" -m pytest -q -p no:cacheprovider "engines/$package/tests"; then
    echo "ci/engines.sh: $package passed, $((SECONDS - start)) s"
  else
    echo "ci/engines.sh: $package FAILED, $((SECONDS - start)) s"
    failures=$((failures + 1))
  fi
}

if [ $# -eq 0 ]; then
  set -- engines/*/
fi
for name in "$@"; do
  name=$(basename "$name")
  if [ ! -f "engines/$name/pyproject.toml" ]; then
    echo "ci/engines.sh: there is no package engines/$name" >&2
    exit 2
  fi
  play "$name"
done
exit "$failures"
