"""Writes what a run on a GPU gave, on one page of Markdown.

``python ci/device_summary.py [--reached FILE] RESULTS.jsonl ...`` prints it: versions, the chip,
counts by verdict, the cases that are not as expected with their first sentence, and, with what
``ci/metal_reached.py`` noted, the paths that only Metal has and that the run came to.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.jsonl import read_run
from conformance.report.markdown import code, table
from conformance.report.message import worst
from conformance.report.outcome import not_playable

MOST_CASES = 80  # fits on a page; the result files have all cases
_CHARACTERS = 200


def summary(results: Sequence[CaseResult], *, planned: int, devices: Iterable[str] = ()) -> str:
    """The page, without its Metal part.

    Args:
        results: of one or several runs.
        planned: the number of cases that should have been run.
        devices: the GPUs that workers took in turn.
    """
    unexpected = [result for result in results if not result.expected]
    chips = sorted({result.device for result in results})
    lines = [f"# mlx-conformance on {', '.join(chips) or 'no device'}", "", *_conditions(results)]
    if names := ", ".join(devices):
        lines.append(f"- GPUs, which workers took in turn: {code(names)}")
    lines += ["", f"{len(results)} of {planned} cases; {len(unexpected)} not as expected.", ""]
    lines += [*_counts(results), "", f"## Not as expected: {len(unexpected)}", ""]
    if unexpected:
        rows = [(code(r.case), str(r.verdict), _first(r)) for r in unexpected[:MOST_CASES]]
        lines += table(("case", "verdict", "first sentence"), rows)
    if more := len(unexpected) - MOST_CASES:
        lines += ["", f"and {more} more: the result file has them"] if more > 0 else []
    if notes := not_playable(results):
        lines += ["", "## Not playable here", "", *(f"- {code(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def _conditions(results: Sequence[CaseResult]) -> Iterator[str]:
    versions = sorted({f"{name} {v}" for r in results for name, v in r.versions.items()})
    commands = dict.fromkeys(r.invocation.command for r in results if r.invocation)
    yield f"- Versions: {code(', '.join(versions))}"
    yield f"- System: {code(f'{platform.platform()}, {platform.machine()}')}"
    yield from (f"- Command: {code(command)}" for command in commands)


def _counts(results: Sequence[CaseResult]) -> list[str]:
    """Cases by verdict and dtype, with the number of unexpected ones."""
    dtypes = sorted({result.dtype for result in results})
    rows = []
    for verdict in Verdict:
        of_it = [result for result in results if result.verdict is verdict]
        cells = [str(sum(r.dtype == dtype for r in of_it) or "") for dtype in dtypes]
        wrong = sum(not result.expected for result in of_it)
        rows += [(str(verdict), *cells, str(wrong or ""))] if of_it else []
    return table(("verdict", *dtypes, "not as expected"), rows)


def _first(result: CaseResult) -> str:
    finding = worst(result)
    if finding is None:
        return ""
    said = finding.what if finding.got in finding.what else f"{finding.what}: {finding.got}"
    return code(said[:_CHARACTERS])


def reached_lines(reached: Iterable[str], kernels: Sequence[str]) -> list[str]:
    """Lines about which of the Metal-only kernels were called.

    Args:
        reached: file and line of each call, by process; may contain duplicates.
        kernels: all Metal-only kernels.
    """
    called = sorted(set(reached) & set(kernels))
    unknown = sorted(set(reached) - set(kernels))
    lines = ["", f"## Metal kernels that were called: {len(called)} of {len(kernels)}", ""]
    lines += [f"- {code(place)}" for place in called]
    if unknown:
        lines += ["", f"Made at a line that is not in the list: {code(', '.join(unknown))}"]
    return lines


def kernels_of_libraries() -> list[str]:
    """File and line of each Metal-only kernel, as listed in docs/gpu.md."""
    path = Path(__file__).with_name("metal_paths.py")
    spec = importlib.util.spec_from_file_location("metal_paths", path)
    assert spec is not None  # the file is next to this one
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules["metal_paths"] = module
    spec.loader.exec_module(module)
    return [str(place) for place in module.places() if place.kind == module.KERNEL]


def main() -> int:
    """Print the page; return 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reached", type=Path)
    parser.add_argument("files", type=Path, nargs="+", metavar="RESULTS.jsonl")
    given = parser.parse_args()
    try:
        runs = [read_run(path) for path in given.files]
    except ConformanceError as error:
        print(f"ci/device_summary.py: {error}", file=sys.stderr)
        return 2
    results = [result for run in runs for result in run.results]
    headers = [run.header for run in runs if run.header]
    names = dict.fromkeys(name for header in headers for name in header.devices)
    planned = sum(header.planned for header in headers)
    print(summary(results, planned=max(planned, len(results)), devices=names), end="")
    if given.reached is not None:
        text = given.reached.read_text(encoding="utf-8") if given.reached.is_file() else ""
        print("\n".join(reached_lines(text.split(), kernels_of_libraries())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
