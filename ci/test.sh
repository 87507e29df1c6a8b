#!/usr/bin/env bash
# Everything that must pass before a change is merged: sets up, runs every stage even if one fails,
# and reports the result of each at the end. Developers and CI run this same script. Arguments are
# the stages to run, for example `bash ci/test.sh lint types`; the default is all except `nightly`,
# which runs more tests of each kind than the stage `tests` does.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
# Many containers forbid bytecode; each process would then compile every module that it imports.
unset PYTHONDONTWRITEBYTECODE
stages="lint format types docs workflows tests suite"
for name in "$@"; do
  case " $stages nightly " in
    *" $name "*) ;;
    *)
      echo "ci/test.sh: there is no stage $name; there are: $stages nightly" >&2
      exit 2
      ;;
  esac
done
bash ci/setup.sh --browser || exit 1

asked="${*:-$stages}"
summary=""
failures=0

stage() {
  local name="$1" start=$SECONDS outcome=passed
  case " $asked " in *" $name "*) ;; *) return ;; esac
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
stage docs $bin/mkdocs build --strict --quiet
stage workflows bash ci/workflows.sh
# A worker keeps to its share of the files, whose models and runs are then made once.
stage tests $bin/python -m pytest tests -q -n auto --dist worksteal
stage nightly $bin/python -m pytest tests -q -n auto --dist worksteal -m nightly
# Of one family of each kind, in the quick tier, the cases that show every verdict and known defect
# (ci/suite_cases.py), and their goldens: the same on every machine. All families are run by the
# README's first command and a job of the workflow.
kinds="$($bin/python ci/kinds.py)"
# shellcheck disable=SC2086  # several options
stage suite $bin/python -m pytest --pyargs @ci/suite_cases.txt conformance.suite.goldens -q -n auto \
  --conformance-engine 'mlx_*' --conformance-tier quick $kinds

printf '\n%s' "$summary"
if [ "$failures" -gt 0 ]; then
  echo "$failures of the stages failed"
  exit 1
fi
echo "all stages passed"
