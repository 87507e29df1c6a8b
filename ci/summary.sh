#!/usr/bin/env bash
# Joins the results of N shards and tells GitHub: bash ci/summary.sh N [options of conformance
# summary]. It writes build/all.jsonl, JUnit XML, a badge and the pages of the report; the summary
# and the annotations go to the job. baseline/all.jsonl, where there is one, is what it is held to.
# With --whole, an expectation that met no case is a problem.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -eq 0 ]; then
  echo "usage: bash ci/summary.sh N [options of conformance summary]" >&2
  exit 2
fi
count="$1"
shift
bash ci/setup.sh
mkdir -p build/badge

set -- --badge build/badge --junit build/junit.xml --json build/all.jsonl --annotations "$@"
if [ -s baseline/all.jsonl ]; then
  set -- --against baseline/all.jsonl "$@"
fi
failed=0
shopt -s nullglob
files=(results/*-of-"$count".jsonl)
if [ "${#files[@]}" -ne "$count" ]; then
  echo "::error title=shards missing::${#files[@]} of $count shards left results"
  failed=1
fi
if [ "${#files[@]}" -gt 0 ]; then
  .venv/bin/conformance summary "${files[@]}" "$@" || failed=1
  .venv/bin/conformance report "${files[@]}" --html build/report || failed=1
fi
exit "$failed"
