"""The two kinds of entries, and which cases each concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from conformance.checks.expectations.bound_places import Bound
from conformance.checks.expectations.entry_tables import Entry
from conformance.core.known_defect import Severity, severity_of
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.scenarios.workloads import is_workload

NUMERIC = frozenset({Verdict.DRIFT, Verdict.DIVERGED, Verdict.NAN})
"""Numeric verdicts: which of them a defect gets depends on weights, prompts and rounding."""

CLAIMED = frozenset({Verdict.POLICY, Verdict.COST, Verdict.LEAK, Verdict.PROTOCOL})
"""Verdicts about what an engine says and holds, not about its tokens."""

STRAY = NUMERIC | {Verdict.UNSTABLE, Verdict.CRASH}
"""The verdicts of a defect that reads uninitialized memory depend on the memory's content."""

# How the names of libraries' servers end, and those of their scenarios begin.
_SERVER, _SERVED = "_server", "served_"

MAY_HIDE = NUMERIC | {Verdict.UNSTABLE, Verdict.ORACLE, Verdict.POLICY}
"""Verdicts that may disappear with other weights, other prompts or more noise."""


class Defect(Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One known defect of a library, as it shows in cases.

    Attributes:
        engines: globs; default: the engine that the file is named after.
        families: globs of the families that have it, in which it must show.
        traits: for a cause in shared code: globs of traits (``cache:ArraysCache``), with `` & ``
            between traits that must occur together. It may show in any other family with them.
        except_families: globs of families that do not have it, or where a worse defect hides it.
        dtypes: globs of the dtypes in which it must show.
        may_show_in: globs of other dtypes, in which noise can hide it.
        device: prefix of the device's name; empty for all devices.
        package: the same for the whole file.
        versions: in other releases, and in checkouts, it is known if the functions of ``where``
            are the same.
        script: the standalone script that shows it, relative to the repository, or the id of
            another entry whose script shows it; if absent, ``conformance repro ID`` writes it.
        behind: ids of entries about what it hides: if it is mended, the entries among them that
            name the family, or have traits, are mended with it; in ``except_families``, too. If the
            entry is about one family, all are.
        verdicts: for each scenario that shows it, the expected verdict; or a list of numeric
            verdicts, if the family's weights decide. Empty if it shows only where another entry,
            with this one in ``behind``, is mended.
            Workloads need not be named: see ``in_workloads``.
        schedules: for a scenario, the only schedules that may fail; any if absent. A case that runs
            none of them is not concerned.
        other_seeds: scenarios that are right with seed 0, and may show it with other weights and
            prompts, with any numeric verdict; workloads with any verdict.
        by_time: timing-dependent (threads or clients): affected cases may pass.
        ends_process: its cases end the process that runs them: as released, each is run in its own
            process.
        in_workloads: it may show in every workload, with any verdict; mended, the workload is
            right. Not for an entry without a mend, which would hide the workload.
        suffers: what a user suffers, in one sentence that needs no knowledge of the code.
        severity: the kind of harm, if it is not what the worst verdict means.
        served: whether the library's own server can meet it. Only written where it cannot although
            the engine that the server uses shows it.
            The first of several entries about one defect says these three.
        right_alone: for an entry without a mend: each request of a schedule that shows it is right
            alone, on a model loaded anew. This is checked, or a new defect would hide behind it.
        functions: its places as they were diagnosed, with digests of functions and files.
        unchanged_in: the installed code, outside of ``versions``, with the same functions.
        changed_in: the installed code with other functions.
        hidden_in: the families of the entries in ``behind``.
        also_in: releases beside ``versions`` in which it was seen. These five are no fields of an
            entry's table.
    """

    engines: tuple[str, ...]
    families: tuple[str, ...]
    traits: tuple[str, ...] = ()
    except_families: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    may_show_in: tuple[str, ...] = ()
    device: str = ""
    script: str = ""
    behind: tuple[str, ...] = ()
    verdicts: dict[str, Verdict | tuple[Verdict, ...]] = msgspec.field(default_factory=dict)
    schedules: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    other_seeds: tuple[str, ...] = ()
    by_time: bool = False
    ends_process: bool = False
    in_workloads: bool = True
    suffers: str = ""
    severity: Severity | None = None
    served: bool = True
    right_alone: bool = False
    functions: dict[str, Bound] = msgspec.field(default_factory=dict)
    unchanged_in: str = ""
    changed_in: str = ""
    hidden_in: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    also_in: tuple[str, ...] = ()

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The places as they were diagnosed."""
        return self.functions

    def in_release(self, version: str) -> bool:
        """Whether that release of the package has the defect."""
        return version in self.also_in or super().in_release(version)

    def hides(self, family: str) -> tuple[str, ...]:
        """The ids of ``behind`` whose entries may concern the family; all, if it is its own."""
        if self.families == (family,):
            return self.behind
        return tuple(name for name in self.behind if matches(family, self.hidden_in[name]))

    @property
    def harm(self) -> Severity:
        """The kind of harm: the entry's own word, else that of its worst verdict."""
        scenarios = (*self.verdicts, *self.other_seeds)[: len(self.verdicts) or None]
        return self.severity or severity_of(v for name in scenarios for v in self.wanted(name))

    @property
    def by_hand(self) -> bool:
        """Whether its script is a file, which no command writes."""
        return self.script.endswith(".py")

    def active(self, versions: Mapping[str, str]) -> bool:
        """Whether the code that was run has the defect."""
        code = code_of(self.package, versions)
        if code and code in (self.unchanged_in, self.changed_in):
            return code == self.unchanged_in
        return bool(code) and self.in_release(versions[self.package])

    def is_about(self, engine: str, family: str, traits: Iterable[str] = ()) -> bool:
        """Whether the entry covers that family on that engine."""
        return (
            (matches(engine, self.engines) or self.over_http(engine))
            and (matches(family, self.families) or any(has(traits, t) for t in self.traits))
            and not matches(family, self.except_families)
        )

    def over_http(self, engine: str) -> bool:
        """Whether it is an entry of the engine that decodes for this server.

        Which requests share a batch is a matter of time: it may show in each of the server's
        scenarios, as in a workload. Not one of every family, which would excuse any failure.
        """
        decodes = engine.removesuffix(_SERVER)
        known = self.served and not self.of_servers and matches(decodes, self.engines)
        return decodes != engine and known and "*" not in self.families

    @property
    def of_servers(self) -> bool:
        """Whether it is a defect of a server, not of the engine that decodes for it."""
        return any(_SERVER in name for name in self.engines)  # "mlx_lm_server*", too

    def ends(self, case: CaseId, versions: Mapping[str, str], device: str) -> bool:
        """Whether the defect ends the process that runs the case, as known before the run."""
        return (
            self.ends_process
            and device.startswith(self.device)
            and self.shows_in(case.scenario)
            and not self.over_http(case.engine)
            and self.is_about(case.engine, case.family)
            and matches(case.dtype, (*self.dtypes, *self.may_show_in))
            and self.active(versions)
        )

    def concerns(self, result: CaseResult) -> bool:
        """Whether the entry covers the case."""
        return self.is_about_case(result) and self._reaches(result)

    def is_about_case(self, result: CaseResult) -> bool:
        """Whether it covers the case, including schedules that may have been left out."""
        return (
            self._names(result)
            and self.is_about(result.engine, result.family, result.traits)
            and matches(result.dtype, (*self.dtypes, *self.may_show_in))
            and result.device.startswith(self.device)
            and self.active(result.versions)
        )

    def shows_in(self, scenario: str) -> bool:
        """Whether the scenario may show it, with any seed."""
        return scenario in self.verdicts or self.anyhow_in(scenario)

    def anyhow_in(self, scenario: str) -> bool:
        """Whether it may show in the scenario with any verdict or none.

        That is a workload or, of an entry that is not a server's own, a scenario of servers.
        """
        unnamed = scenario not in self.verdicts
        shown = bool(self.verdicts or self.other_seeds)
        served = scenario.startswith(_SERVED) and not self.of_servers
        return unnamed and self.in_workloads and shown and (is_workload(scenario) or served)

    def _names(self, result: CaseResult) -> bool:
        """Whether the scenario may show it with the seed of the case."""
        return self.shows_in(result.scenario) or (
            result.seed != 0 and result.scenario in self.other_seeds
        )

    def _reaches(self, result: CaseResult) -> bool:
        """Whether the case ran a schedule that the entry names, if it names any."""
        names = self.schedules.get(result.scenario)
        if names is None or not result.schedules:
            return True
        return any(schedule.name in names for schedule in result.schedules)

    def strict(self, result: CaseResult) -> bool:
        """Whether the defect must show in the case.

        Only in families and releases that the entry names: others with its trait may be right, and
        unreleased code may be fixed. If the run's tier left schedules out, the defect may be in
        those.
        """
        return (
            not result.left_out
            and not self.anyhow_in(result.scenario)
            and not self.by_time
            and self.fixed(result)
            and matches(result.family, self.families)
            and self.released(result.versions)
        )

    def released(self, versions: Mapping[str, str]) -> bool:
        """Whether the code is a release that ``versions`` names."""
        released = code_of(self.package, versions) == versions.get(self.package)
        return released and self.in_release(versions[self.package])

    def fixed(self, result: CaseResult) -> bool:
        """Whether the defect, if it shows, has exactly its verdict.

        Other seeds mean other weights and prompts, and lower precision means more noise: then a
        numeric verdict may differ, or the defect may stay hidden; so may defects of the oracle, and
        all in workloads, whose requests are drawn. Everything else is fixed.
        """
        surely = result.seed == 0 and matches(result.dtype, self.dtypes)
        drawn = is_workload(result.scenario)
        return surely or not (drawn or MAY_HIDE.issuperset(self.wanted(result.scenario)))

    def wanted(self, scenario: str) -> tuple[Verdict, ...]:
        """The verdicts of which a case in this scenario must have one."""
        if self.anyhow_in(scenario):
            return tuple(verdict for verdict in Verdict if not verdict.good)
        verdicts = self.verdicts.get(scenario, tuple(sorted(NUMERIC)))
        return verdicts if isinstance(verdicts, tuple) else (verdicts,)

    def claims(self, scenario: str, schedule: str) -> bool:
        """Whether the entry allows this schedule to fail."""
        return scenario not in self.schedules or schedule in self.schedules[scenario]

    def accepted(self, result: CaseResult) -> frozenset[Verdict]:
        """The verdicts that the case, or a schedule that the entry claims, may have.

        Some schedules may show the defect less than the worst one. If the verdict is not fixed, or
        the family only has the trait, any numeric verdict may replace another. What a server says
        wrongly excuses no wrong token: a race could not be distinguished from it.
        """
        wanted = frozenset(self.wanted(result.scenario))
        accepted = wanted
        if not self.fixed(result) or not matches(result.family, self.families):
            accepted |= NUMERIC if wanted <= STRAY else frozenset()
        if self.fixed(result):
            worst = max(v.severity for v in wanted)
            lesser = {v for v in Verdict if not v.good and v.severity <= worst}
            if self.of_servers and wanted <= CLAIMED | NUMERIC:
                numbers = max((v.severity for v in wanted & NUMERIC), default=-1)
                lesser = {v for v in lesser if v not in NUMERIC or v.severity <= numbers}
            accepted |= lesser
        return accepted


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that a library refuses with a message of its own.

    Attributes:
        id: its name; unique in the folder.
        engines: globs; default: the engine that the file is named after.
        families: globs of the families that it refuses.
        scenarios: globs of the scenarios that it refuses.
        dtypes: globs of the dtypes that it refuses.
        device: prefix of the device's name; empty for all devices.
        text: must occur in the library's message.
        why: the missing feature.
        package: as in ``Defect``; not used, because the message decides.
    """

    id: str
    engines: tuple[str, ...]
    families: tuple[str, ...]
    scenarios: tuple[str, ...] = ("*",)
    dtypes: tuple[str, ...]
    device: str = ""
    text: str
    why: str
    package: str

    def is_about(self, engine: str, family: str) -> bool:
        """Whether the entry covers that family on that engine."""
        return matches(engine, self.engines) and matches(family, self.families)

    def concerns(self, result: CaseResult) -> bool:
        """Whether the case is one that may be refused."""
        return (
            self.is_about(result.engine, result.family)
            and matches(result.scenario, self.scenarios)
            and matches(result.dtype, self.dtypes)
            and result.device.startswith(self.device)
        )

    def explains(self, result: CaseResult) -> bool:
        """Whether the case was refused with this message."""
        return result.verdict is Verdict.UNSUPPORTED and self.refused(result)

    def refused(self, result: CaseResult) -> bool:
        """Whether the library refused a part of the case with this message."""
        released = (finding for finding in result.evidence if not finding.mended)
        return self.concerns(result) and any(map(self.words, released))

    def words(self, finding: Finding) -> bool:
        """Whether the finding has the library's message."""
        return self.text in finding.what or self.text in finding.got


def code_of(package: str, versions: Mapping[str, str]) -> str:
    """Which code of a package was run: its version, and for a checkout also path and commit."""
    return " ".join(versions[key] for key in (package, f"{package} source") if key in versions)


def has(traits: Iterable[str], wanted: str) -> bool:
    """Whether there is a trait for each glob of ``cache:RotatingKVCache & drafter:mtp``."""
    found = tuple(traits)
    return all(any(fnmatchcase(trait, glob) for trait in found) for glob in wanted.split(" & "))


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether any of the globs matches the name."""
    return any(fnmatchcase(name, glob) for glob in globs)
