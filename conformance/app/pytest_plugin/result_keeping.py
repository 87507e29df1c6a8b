"""Keeps the results of a run for later ones, in the reporting process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from conformance.app.pytest_plugin.setup import Setup
from conformance.core.verdict import CaseId, CaseResult
from conformance.reference.surroundings import Environment, family_digest
from conformance.run.reuse.dependency_recorder import Seen
from conformance.run.reuse.planning import bare


class ResultKeeper:
    """Collects what each case depends on; at the end it writes the results under their keys.

    Attributes:
        problem: a sentence if nothing was kept because something changed during the run.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._modules: dict[tuple[str, str], dict[str, Seen]] = {}
        self._cases: set[str] = set()
        self.problem = ""

    def take(self, case: str, modules: str) -> None:
        """Note that a case may be kept.

        Args:
            case: its id.
            modules: JSON of what it depends on, without what was reported before.
        """
        found = msgspec.json.decode(modules, type=dict[str, Seen])
        name = CaseId.parse(case)
        self._modules.setdefault((name.engine, name.family), {}).update(found)
        self._cases.add(case)

    def keep(self, results: Iterable[CaseResult]) -> dict[str, str]:
        """Write the results that may be kept; return the key of each.

        Nothing is written if the installation or the settings have changed since the run began.
        """
        kept: dict[tuple[str, str], list[CaseResult]] = {}
        for result in results:
            if result.case in self._cases and not result.reused:
                kept.setdefault((result.engine, result.family), []).append(result)
        before = self._setup.environment
        if kept and Environment().contents != before.contents:
            self.problem = "what is installed changed during this run: its results are not kept"
            return {}
        store = self._setup.result_store()
        tier = self._setup.selection.tier.name
        keys = {}
        for (engine, name), found in kept.items():
            family = self._setup.registry.families[
                self._setup.registry.engines[engine].library, name
            ]
            if Path(family.path).is_file() and not before.unchanged(Path(family.path)):
                continue
            digest = family_digest(family)
            store.add(
                engine,
                name,
                family_digest=digest,
                modules=self._modules[engine, name],
                results={tier: [bare(result) for result in found]},
            )
            for result in found:
                keys[result.case] = store.key(CaseId.parse(result.case), digest, tier)
        return keys
