"""All that a report is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conformance.core.errors import ReportError
from conformance.core.inventory import Inventory
from conformance.core.verdict import CaseResult
from conformance.report.explanation import Explanation
from conformance.report.trials import Trial

Run = tuple[str, tuple[CaseResult, ...]]
"""A run by its name, such as a release's."""


@dataclass(frozen=True)
class Material:
    """All that a report is made of; what is empty has no page.

    Attributes:
        results: each case once.
        inventory: what there is to run.
        trials: of ``conformance power``.
        before: results of an older run, to compare with.
        runs: of several releases, the oldest first.
        explanations: by case id.
        scripts: by case id, what shows it without this project.
    """

    results: tuple[CaseResult, ...]
    inventory: Inventory
    trials: tuple[Trial, ...] = ()
    before: tuple[CaseResult, ...] = ()
    runs: tuple[Run, ...] = ()
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)


def merged(files: Iterable[Iterable[CaseResult]]) -> tuple[CaseResult, ...]:
    """The results of several files, by case id; of the same case the last one counts.

    Raises:
        ReportError: there is none.
    """
    found = {result.case: result for results in files for result in results}
    if not found:
        raise ReportError("there is nothing to report: the result files have no results")
    return tuple(found[case] for case in sorted(found))
