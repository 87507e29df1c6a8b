"""Records how long each family takes: ``python ci/family_seconds.py RESULTS.jsonl...``.

The results come from a run, or from all its shards. Writes ``conformance/run/family_seconds.json``,
by which families are assigned to workers and shards; groups of which no case was run, such as those
of servers, keep their seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseId, CaseResult
from conformance.report.jsonl import read_results, write_lines
from conformance.run.family_seconds import FILE, FamilySeconds, measured
from conformance.run.registry import Registry, build_registry

TARGET = Path(__file__).parents[1] / "conformance" / "run" / FILE


def main(sources: Sequence[str], target: Path = TARGET) -> str:
    """Write the file; return why it could not be written, as the exit status, or nothing."""
    if not sources:
        return "usage: python ci/family_seconds.py RESULTS.jsonl..."
    registry = build_registry()
    try:
        results = [result for source in sources for result in read_results(Path(source))]
        found = measured(results, lambda result: _group(registry, result))
        if not found:
            return f"no results in {', '.join(sources)}"
        known = FamilySeconds.read(target).recorded if target.exists() else {}
        found = dict(sorted({**known, **found}.items()))
        rows = [f"{_json(name)}: {_json(found[name])}" for name in found]  # a family's on one line
        write_lines(target, ["{\n" + ",\n".join(rows) + "\n}"])
    except ConformanceError as error:
        return str(error)
    seconds = sum(FamilySeconds(found).of(name) for name in found)
    print(f"{target}: {len(found)} families, {seconds:.0f} s")
    return ""


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _group(registry: Registry, result: CaseResult) -> str:
    if result.engine not in registry.engines:
        raise ConformanceError(f"{result.case}: no engine {result.engine!r} is installed")
    return registry.group_of(CaseId.parse(result.case))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
