"""The data of a report, and how it is read."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.core.errors import ReportError
from conformance.core.inventory import Inventory
from conformance.core.known_defect import KnownDefect
from conformance.core.user_files import read_text
from conformance.core.verdict import CaseResult
from conformance.report.cascades import Cascade, cascades
from conformance.report.cost_table import CostTable, cost_table
from conformance.report.explanation import Explanation
from conformance.report.jsonl import read_records
from conformance.report.mutants import MutantResult
from conformance.report.pages.defects_page import Shown, defects_shown
from conformance.report.pages.environment import case_slug
from conformance.report.servers import Compatibility, compatibility
from conformance.report.trials import Trial


@dataclass(frozen=True)
class Material:
    """The data of a report; a page without data is left out.

    Attributes:
        results: each case once.
        inventory: what can be run.
        trials: output of ``conformance audit power``.
        mutants: output of ``conformance audit mutants``.
        before: results of an older run, to compare with.
        explanations: explanations by case id.
        scripts: scripts by case id, each showing the defect without this project.
        missing: how many planned cases have no result.
        problems: sentences about problems outside of cases.
        defects: all known upstream defects, in their order.
    """

    results: tuple[CaseResult, ...]
    inventory: Inventory
    trials: tuple[Trial, ...] = ()
    mutants: tuple[MutantResult, ...] = ()
    before: tuple[CaseResult, ...] = ()
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    problems: tuple[str, ...] = ()
    defects: tuple[KnownDefect, ...] = ()

    @functools.cached_property
    def cascades(self) -> tuple[Cascade, ...]:
        """The unexpected cases by their causes, the most important first."""
        return cascades(self.results, self.inventory.scenarios, self.explanations)

    @functools.cached_property
    def defects_shown(self) -> tuple[Shown, ...]:
        """The known defects that a result names."""
        return defects_shown(self.defects, self.results)

    @functools.cached_property
    def costs(self) -> CostTable | None:
        """The cost of work by engine, if it was counted."""
        return cost_table(self.results)

    @functools.cached_property
    def servers(self) -> Compatibility | None:
        """What each server does, if servers were run."""
        return compatibility(self.results, self.inventory)


def merged(files: Iterable[Iterable[CaseResult]]) -> tuple[CaseResult, ...]:
    """The results of several files, by case id; the last result of a case counts.

    Raises:
        ReportError: there are no results.
    """
    found = {result.case: result for results in files for result in results}
    if not found:
        raise ReportError("there is nothing to report: the result files have no results")
    return tuple(found[case] for case in sorted(found))


# Reads the output of other commands about single cases: explanations and scripts -----------------


def read_explanations(folder: Path) -> dict[str, Explanation]:
    """The output of ``conformance explain --json``, by case id; only without a fault.

    Raises:
        ReportError: a ``.json`` or ``.jsonl`` file cannot be read, or is not such output; the
            message names it.
    """
    what = "not the output of `conformance explain --json`"
    return {
        found.case: found
        for path in sorted([*folder.glob("*.json"), *folder.glob("*.jsonl")])
        for found in read_records(path, Explanation, what, ReportError)
        if not found.fault  # with a fault it does not explain the case without it
    }


def read_scripts(folder: Path, results: Iterable[CaseResult]) -> dict[str, str]:
    """The scripts in the folder and its subfolders, by case id.

    A case's own script has the name shown on its page. Otherwise the script of a known defect of
    the case is used, named as ``repro --known`` names it: ``kv_offset.py`` for ``kv-offset``.

    Raises:
        ReportError: one cannot be read.
    """
    there = {path.stem: path for path in sorted(folder.rglob("*.py"), reverse=True)}
    found = {}
    for result in results:
        defects = (result.known or "").replace("-", "_").split(", ")
        path = next((there[n] for n in (case_slug(result.case), *defects) if n in there), None)
        if path is not None:
            found[result.case] = read_text(path, ReportError)
    return found
