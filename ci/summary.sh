#!/usr/bin/env bash
# Joins the results of N shards and reports them to GitHub: bash ci/summary.sh N [options of
# conformance report]. It writes build/all.jsonl, JUnit XML, a badge and pages; the summary and the
# annotations go to the job. build/status has the status of these releases and of those kept in
# baseline/releases. It compares with baseline/all.jsonl, if that exists. For two minutes it
# explains failures, so that findings say where they begin. This needs the shards' machine and
# libraries (CONFORMANCE_INSTALL, as for ci/shard.sh); otherwise they stay unexplained. With
# --whole, an expectation that matched no case is a problem. CONFORMANCE_OPTIONS has more options,
# separated by blanks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count="${1:-}"
case "$count" in
  "" | 0* | *[!0-9]*)
    echo "usage: bash ci/summary.sh N [options of conformance report]; N is how many shards ran" >&2
    exit 2
    ;;
esac
shift
bash ci/setup.sh
mkdir -p build/badge

# shellcheck disable=SC2086  # several options
set -- --explain-seconds 120 ${CONFORMANCE_OPTIONS:-} --html build/report --badge build/badge \
  --junit build/junit.xml --json build/all.jsonl --annotations "$@"
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
  .venv/bin/conformance report "${files[@]}" "$@" || failed=1
  .venv/bin/conformance report baseline/releases/*.jsonl "${files[@]}" --site build/status || failed=1
fi
exit "$failed"
