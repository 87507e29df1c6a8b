#!/usr/bin/env bash
# All that must pass before a change goes in: sets up, runs every stage even if one fails, and says
# at the end what each came to. Developers and CI run this same script.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash ci/setup.sh || exit 1

summary=""
failures=0

stage() {
  local name="$1" start=$SECONDS outcome=passed
  shift
  echo "== $name: $*"
  if ! "$@"; then
    outcome=FAILED
    failures=$((failures + 1))
  fi
  summary="$summary$(printf '%-12s %-6s %5d s' "$name" "$outcome" $((SECONDS - start)))
"
}

bin=.venv/bin
stage lint $bin/ruff check .
stage format $bin/ruff format --check .
stage types $bin/mypy
stage tests $bin/python -m pytest tests -q -n auto
stage suite $bin/python -m pytest --pyargs conformance.suite -q -n auto --conformance-engine 'mlx_*'

printf '\n%s' "$summary"
if [ "$failures" -gt 0 ]; then
  echo "$failures of the stages failed"
  exit 1
fi
echo "all stages passed"
