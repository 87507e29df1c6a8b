"""Keeps the results of a run for later ones, in the process that reports."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from conformance.app.pytest_plugin.setup import Setup
from conformance.core.verdict import CaseId, CaseResult
from conformance.run.reuse.digests import family_digest
from conformance.run.reuse.planning import bare
from conformance.run.reuse.result_store import ResultStore


class ResultKeeper:
    """Gets what each case hung on; at the end it writes the results and knows their keys."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._store = ResultStore(setup.result_folder)
        self._modules: dict[tuple[str, str], dict[str, str]] = {}
        self._cases: set[str] = set()

    def take(self, case: str, modules: str) -> None:
        """Note that a case may be kept.

        Args:
            case: its id.
            modules: JSON of digests by module, those that were reported before left out.
        """
        found = msgspec.json.decode(modules, type=dict[str, str])
        name = CaseId.parse(case)
        self._modules.setdefault((name.engine, name.family), {}).update(found)
        self._cases.add(case)

    def keep(self, results: Iterable[CaseResult]) -> dict[str, str]:
        """Write the results that may be kept; the key of each of them."""
        tier = self._setup.selection.tier.name
        kept: dict[tuple[str, str], list[CaseResult]] = {}
        for result in results:
            if result.case in self._cases and not result.reused:
                kept.setdefault((result.engine, result.family), []).append(result)
        keys = {}
        for (engine, family), found in kept.items():
            library = self._setup.registry.engines[engine].library
            digest = family_digest(self._setup.registry.families[library, family])
            self._store.add(
                engine,
                family,
                family_digest=digest,
                modules=self._modules[engine, family],
                results={tier: [bare(result) for result in found]},
            )
            for result in found:
                keys[result.case] = self._store.key(CaseId.parse(result.case), digest, tier)
        return keys
