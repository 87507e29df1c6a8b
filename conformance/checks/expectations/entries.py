"""The two kinds of entries, and which cases each speaks of."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec
from packaging.specifiers import SpecifierSet

from conformance.core.verdict import CaseResult, Verdict

NUMERIC = frozenset({Verdict.DRIFT, Verdict.DIVERGED, Verdict.NAN})
"""Verdicts on numbers: which of them a defect gets depends on weights, prompts and rounding."""

STRAY = NUMERIC | {Verdict.UNSTABLE, Verdict.CRASH}
"""What a defect that reads stray memory may get: it depends on what lies there."""

MAY_HIDE = NUMERIC | {Verdict.UNSTABLE, Verdict.ORACLE, Verdict.POLICY}
"""Verdicts that other weights, prompts or more noise may keep from showing at all."""


class Defect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One known defect of a library.

    Attributes:
        id: names it; unique in the folder.
        engines: globs; by default the engine that the file is named after.
        families: globs of the families that have it.
        except_families: globs of those that do not, or in which a worse defect hides it.
        dtypes: globs of the dtypes in which it must show.
        may_show_in: globs of further dtypes, in which noise can hide it.
        device: how the device's name must begin; absent, it shows on all.
        package: whose ``versions`` are meant; the file's.
        versions: releases that have it; for others the entry is inactive.
        where: file and line upstream.
        why: why it is wrong.
        script: the standalone script that shows it, relative to the repository, or another entry
            whose script shows it, too; absent, ``conformance repro ID`` writes it.
        verdicts: for each scenario that shows it, the verdict expected there; of verdicts on
            numbers a list, where it depends on the family's weights which of them it is.
        schedules: for a scenario, the only schedules of it that may be bad; where absent, any. A
            case that plays none of them is not concerned.
    """

    id: str
    engines: tuple[str, ...]
    families: tuple[str, ...]
    except_families: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    may_show_in: tuple[str, ...] = ()
    device: str = ""
    package: str
    versions: str
    where: str
    why: str
    script: str = ""
    verdicts: dict[str, Verdict | tuple[Verdict, ...]]
    schedules: dict[str, tuple[str, ...]] = {}

    @property
    def by_hand(self) -> bool:
        """Whether its script is a file, which no command writes."""
        return self.script.endswith(".py")

    def active(self, result: CaseResult) -> bool:
        """Whether the release that ran has the defect."""
        version = result.versions.get(self.package)
        return version is not None and self.in_release(version)

    def in_release(self, version: str) -> bool:
        """Whether that release of the package has the defect."""
        return SpecifierSet(self.versions).contains(version, prereleases=True)

    def speaks_of(self, engine: str, family: str) -> bool:
        """Whether the entry says something about that family under that engine."""
        return (
            matches(engine, self.engines)
            and matches(family, self.families)
            and not matches(family, self.except_families)
        )

    def concerns(self, result: CaseResult) -> bool:
        """Whether the entry says something about the case."""
        return (
            result.scenario in self.verdicts
            and self.speaks_of(result.engine, result.family)
            and matches(result.dtype, (*self.dtypes, *self.may_show_in))
            and result.device.startswith(self.device)
            and self.active(result)
            and self._reaches(result)
        )

    def _reaches(self, result: CaseResult) -> bool:
        """Whether the case played a schedule that the entry names, if it names any."""
        names = self.schedules.get(result.scenario)
        if names is None or not result.schedules:
            return True
        return any(schedule.name in names for schedule in result.schedules)

    def strict(self, result: CaseResult) -> bool:
        """Whether the defect must show in the case, with its very verdict.

        Other seeds draw other weights and prompts, and lower precision makes more noise: there a
        verdict on numbers may be another one, or the defect stay hidden, as the oracle's own
        defects may. All else stays strict.
        """
        surely = result.seed == 0 and matches(result.dtype, self.dtypes)
        return surely or not MAY_HIDE.issuperset(self.wanted(result.scenario))

    def wanted(self, scenario: str) -> tuple[Verdict, ...]:
        """The verdicts of which a case of that scenario must have one."""
        verdicts = self.verdicts[scenario]
        return verdicts if isinstance(verdicts, tuple) else (verdicts,)

    def claims(self, scenario: str, schedule: str) -> bool:
        """Whether the entry says that this schedule may be bad."""
        return scenario not in self.schedules or schedule in self.schedules[scenario]


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that a library says, in its own words, that it cannot do.

    Attributes:
        id: names it; unique in the folder.
        engines: globs; by default the engine that the file is named after.
        families: globs of the families that it refuses.
        scenarios: globs of the scenarios that it refuses.
        dtypes: globs of the dtypes that it refuses.
        device: how the device's name must begin.
        text: must occur in the library's words.
        why: what is missing.
        package: the file's; unused, as the words decide.
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

    def concerns(self, result: CaseResult) -> bool:
        """Whether the case is one that may be refused."""
        return (
            matches(result.engine, self.engines)
            and matches(result.family, self.families)
            and matches(result.scenario, self.scenarios)
            and matches(result.dtype, self.dtypes)
            and result.device.startswith(self.device)
        )

    def explains(self, result: CaseResult) -> bool:
        """Whether the case was refused, in the words named here."""
        return result.verdict is Verdict.UNSUPPORTED and self.said(result)

    def said(self, result: CaseResult) -> bool:
        """Whether the library refused something of the case, in the words named here."""
        return self.concerns(result) and any(
            self.text in f.what or self.text in f.got for f in result.evidence
        )


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether any of the globs matches the name."""
    return any(fnmatchcase(name, glob) for glob in globs)
