"""Sorts what a new release shows against the known defects: what a person has to read of it.

The release's cases were run with the known defects that its functions still have. An entry whose
function changed is inactive there, and its failures are unexpected.
"""

from __future__ import annotations

import ast
import enum
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conformance.checks.expectations.defects import groups
from conformance.checks.expectations.entries import Defect, code_of
from conformance.checks.expectations.loading import shown_in
from conformance.checks.expectations.lock import PlayedLock
from conformance.checks.expectations.rules import CHANGED
from conformance.core.family import Family
from conformance.core.grouping import grouped
from conformance.core.upstream_functions import Place, digests, places
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.cascades import Cascade, Explanations, cascades
from conformance.report.message import broken_rules, changed_defects, rerun_command
from conformance.report.outcome import listed
from conformance.run.reuse.import_graph import closure, imports_of, package_of
from conformance.tools.releases.pins import Release

OWN_SCHEDULE = "its own schedule"
"""How a case is marked in which an entry's own small schedule was run."""


class Fate(enum.StrEnum):
    """What became of an entry in a release."""

    STILL = "still there"
    FIXED = "fixed"
    CHANGED = "changed"
    UNSEEN = "not seen"


@dataclass(frozen=True)
class Sorted:
    """One entry in a release.

    Attributes:
        changed: its functions that have another source there, or are gone.
        right: cases that have its scenario and families, and are right there.
        wrong: cases that show it, or look like it.
    """

    entry: Defect
    fate: Fate
    changed: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refreshed:
    """What a release shows.

    Attributes:
        entries: all entries about the library.
        new: unexpected failures that look like no known defect, by cause.
        lacking: families whose model the release does not have or cannot load.
        cases: the number of cases that ran.
        locked: what the entries' own schedules of an earlier release showed.
    """

    release: Release
    before: Release
    touched: Touched
    entries: tuple[Sorted, ...]
    new: tuple[Cascade, ...]
    lacking: tuple[str, ...]
    cases: int
    problem: str = ""
    locked: tuple[PlayedLock, ...] = ()

    def of(self, fate: Fate) -> tuple[tuple[Sorted, ...], ...]:
        """The entries with that fate, those of one defect together."""
        found = {one.entry.id: one for one in self.entries if one.fate is fate}
        together = groups(tuple(one.entry for one in found.values()))
        return tuple(tuple(found[entry.id] for entry in group) for group in together)

    @property
    def to_read(self) -> int:
        """The number of items that a person must read."""
        return (
            len(self.new)
            + len(self.of(Fate.FIXED))
            + len(self.of(Fate.CHANGED))
            + bool(self.lacking)
        )


def refreshed(
    release: Release,
    before: Release,
    touched: Touched,
    code: Code,
    *,
    entries: Sequence[Defect],
    results: Sequence[CaseResult],
    order: Sequence[str] = (),
    explanations: Explanations | None = None,
    problem: str = "",
    locked: Sequence[PlayedLock] = (),
) -> Refreshed:
    """Sort the entries about a library by the results of one of its releases.

    Args:
        code: the release's.
        entries: all known defects.
        results: of the touched families, judged there with these entries.
        order: of the ladder.
        problem: why results are missing.
        locked: what the entries' own schedules of an earlier release showed there.
    """
    own = [entry for entry in entries if entry.package == release.library]
    unloaded = _unloaded(results)
    seen = [result for result in results if result.family not in unloaded]
    news = [result for result in seen if not _old(result)]
    return Refreshed(
        release=release,
        before=before,
        touched=touched,
        entries=tuple(_sorted(entry, code, seen, locked) for entry in own),
        new=cascades(news, order, explanations),
        lacking=tuple(dict.fromkeys((*touched.lacking, *unloaded))),
        cases=len(results),
        problem=problem,
        locked=tuple(locked),
    )


def _unloaded(results: Iterable[CaseResult]) -> tuple[str, ...]:
    """Families of which no case got as far as a schedule, as the library refuses their model."""
    of_family = grouped(results, lambda result: result.family)
    return tuple(
        family
        for family, own in of_family.items()
        if all(r.verdict is Verdict.UNSUPPORTED and not r.schedules for r in own)
        and not all(r.expected for r in own)
    )


def _old(result: CaseResult) -> bool:
    """Whether an unexpected result is news of an entry: it looks like it, or passes."""
    if result.expected:
        return False
    return bool(changed_defects(result)) or result.verdict.good


def _sorted(
    entry: Defect, code: Code, results: Sequence[CaseResult], locked: Sequence[PlayedLock]
) -> Sorted:
    changed = tuple(
        str(place)
        for place in places(entry.where)
        if (bound := entry.functions.get(str(place))) and code.function(place) != bound.source
    )
    about = [result for result in results if _about(entry, result)]
    wrong = tuple(result.case for result in about if _shows(entry, result))
    right = tuple(result.case for result in about if _proves_absence(entry, result))
    small = [one for one in locked if one.entry == entry.id]
    small = [one for one in small if one.verdict is not Verdict.UNSUPPORTED]
    wrong += tuple(_small_text(one) for one in small if not one.verdict.good)
    right += tuple(_small_text(one) for one in small if one.verdict.good)
    other = changed or tuple(one.case for one in small if not one.shows)
    return Sorted(entry, _fate(entry, other, right, wrong), changed, right, wrong)


def _small_text(one: PlayedLock) -> str:
    now = "" if one.shows or one.verdict.good else f" is {one.verdict}, was {one.locked}"
    return f"{one.case} ({OWN_SCHEDULE}{now})"


def _fate(
    entry: Defect, changed: Sequence[str], right: Sequence[str], wrong: Sequence[str]
) -> Fate:
    if wrong:
        return Fate.CHANGED if changed or (right and not entry.by_time) else Fate.STILL
    return Fate.FIXED if right and not entry.by_time else Fate.UNSEEN


def _about(entry: Defect, result: CaseResult) -> bool:
    """Whether the entry would cover the case if its functions were unchanged."""
    code = code_of(entry.package, result.versions)
    same = msgspec.structs.replace(entry, unchanged_in=code, changed_in="")
    return result.scenario in entry.verdicts and same.concerns(result)


def _shows(entry: Defect, result: CaseResult) -> bool:
    """Whether the case shows the defect, or fails like it where its function changed."""
    if result.verdict.good:
        return False
    named = entry.id in (result.known or "").split(", ") and not broken_rules(result)
    like = f"{CHANGED} {entry.id}, "
    return named or any(rule.startswith(like) for rule in changed_defects(result))


def _proves_absence(entry: Defect, result: CaseResult) -> bool:
    """Whether the case would show the defect if the release had it.

    Not if it was run only mended, or without some of its schedules, or is of a family that may be
    right.
    """
    named = any(result.family == glob for glob in entry.families) or entry.families == ("*",)
    whole = not result.left_out and not result.mended_alone
    return result.verdict.good and result.seed == 0 and whole and named


# The generated record of releases that were seen to have known defects ----------------------------


def with_release(path: Path, found: Refreshed) -> dict[str, dict[str, list[str]]]:
    """The content of the file with the entries that the release still has."""
    known = {library: dict(releases) for library, releases in shown_in(path.parent).items()}
    still = sorted(one.entry.id for one in found.entries if one.fate is Fate.STILL)
    known.setdefault(found.release.library, {})[found.release.version] = still
    return known


# The page about a new release: what to read first, then what needs no reading ---------------------

_NAMED = 6


def page(found: Refreshed) -> list[str]:
    """The page's lines, in Markdown."""
    return [line for part in _parts(found) for line in part]


def _parts(found: Refreshed) -> Iterator[list[str]]:
    touched = found.touched
    shared = f", {len(touched.shared)} of them of every model" if touched.shared else ""
    yield [
        f"# {found.release}, compared with {found.before.version}",
        "",
        f"{found.to_read} items to read. {found.cases} cases of {len(touched.families)} families "
        f"ran; {len(touched.modules)} modules differ{shared}.",
    ]
    if found.problem:
        yield ["", f"Results are missing: {found.problem}."]
    yield _section("New failures", [_new(one) for one in found.new])
    yield _section("Fixed", [_defect(group) for group in found.of(Fate.FIXED)])
    yield _section("Changed", [_defect(group) for group in found.of(Fate.CHANGED)])
    lacking = found.lacking
    yield _section(
        "Models that it cannot load",
        [f"- {listed(lacking, _NAMED)}{_entries_of(found)}"] if lacking else [],
    )
    yield _section("Still there: nothing to read", _ids(found, Fate.STILL))
    yield _section("Not seen: not run, or refused", _ids(found, Fate.UNSEEN))


def _section(title: str, entries: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *entries] if entries else []


def _new(one: Cascade) -> str:
    more = f" ({len(one.cases)} cases)" if len(one.cases) > 1 else ""
    return f"- {one.sentence}{more} `{rerun_command(one.first)}`"


def _defect(group: Sequence[Sorted]) -> str:
    """One line about the entries of one defect: what changed, and where it is right or wrong."""
    names = ", ".join(f"`{one.entry.id}`" for one in group)
    changed = tuple(dict.fromkeys(place for one in group for place in one.changed))
    right = tuple(dict.fromkeys(case for one in group for case in one.right))
    wrong = tuple(dict.fromkeys(case for one in group for case in one.wrong))
    parts = [
        f"another source: {listed(changed, _NAMED)}" if changed else "its functions are unchanged",
        f"wrong: {listed(wrong, _NAMED)}" if wrong else "",
        f"right: {listed(right, _NAMED)}" if right else "",
    ]
    return f"- {names}: {'; '.join(part for part in parts if part)}"


def _ids(found: Refreshed, fate: Fate) -> list[str]:
    groups = found.of(fate)
    names = [one.entry.id for group in groups for one in group]
    return [f"{len(names)} entries: {', '.join(names)}"] if names else []


def _entries_of(found: Refreshed) -> str:
    """How many entries are about these models alone."""
    lacking = set(found.lacking)
    own = [s for s in found.entries if s.entry.families and set(s.entry.families) <= lacking]
    return f" ({len(own)} entries are about these alone)" if own else ""


# An engine decodes each model with these, whatever the model's own files import.
_SHARED = ("generate", "generate.ar", "utils", "sample_utils", "prompt_utils", "models.cache")


# What the release changed in its code: files are read, not imported, as neither release need be
# the installed one.
@dataclass(frozen=True)
class Code:
    """A library's package folder.

    Attributes:
        folder: such as ``.../site-packages/mlx_lm``.
    """

    folder: Path

    def function(self, place: Place) -> str:
        """The digest of a place's function; empty if it is gone."""
        path = self.folder.parent / place.file
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        return digests(text).get(place.function, "")

    def modules(self) -> dict[str, Path]:
        """The files of all modules, by the module's name."""
        found = {}
        for path in sorted(self.folder.rglob("*.py")):
            parts = path.relative_to(self.folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found


@dataclass(frozen=True)
class Touched:
    """What differs between two releases.

    Attributes:
        modules: changed, new and removed modules, by name.
        families: the families whose cases may run changed code, by name; each of the library if
            there are ``shared`` ones.
        lacking: families whose model the release does not have.
        shared: the changed modules that every case may run.
    """

    modules: tuple[str, ...]
    families: tuple[str, ...]
    lacking: tuple[str, ...]
    shared: tuple[str, ...]


def touched(before: Code, after: Code, families: Sequence[Family]) -> Touched:
    """What the later of two releases changed.

    A family is touched if a changed module is one of its model's, or is imported by these.
    """
    old, new = before.modules(), after.modules()
    changed = {
        name
        for name in old.keys() | new.keys()
        if not name.endswith("version")  # which every release changes
        if name not in old or name not in new or _differ(old[name], new[name])
    }
    package = after.folder.name

    @functools.cache
    def imported(name: str) -> set[str]:
        """The modules of either release that the module imports, in either release."""
        paths = [modules[name] for modules in (old, new) if name in modules]
        named = {one for p in paths for one in imports_of(p, package_of(name, p)) or ()}
        return named & (old.keys() | new.keys())

    shared = closure((f"{package}.{name}" for name in _SHARED), imported) & changed
    lacking = [f for f in families if not _of_model(f, package, new) and _of_model(f, package, old)]
    left = [family for family in families if family not in lacking]
    found = [
        family
        for family in left
        if shared or closure(_of_model(family, package, new), imported) & changed
    ]
    return Touched(
        modules=tuple(sorted(changed)),
        families=tuple(family.name for family in found),
        lacking=tuple(family.name for family in lacking),
        shared=tuple(sorted(shared)),
    )


def _of_model(family: Family, package: str, *modules: Mapping[str, Path]) -> set[str]:
    """The modules of a family's model."""
    own = f"{package}.models.{family.module}"
    names = {name for each in modules for name in each}
    return {name for name in names if name == own or name.startswith(f"{own}.")}


def _differ(one: Path, other: Path) -> bool:
    """Whether the code of two files differs, comments aside."""
    texts = one.read_bytes(), other.read_bytes()
    try:
        return texts[0] != texts[1] and len({ast.dump(ast.parse(text)) for text in texts}) > 1
    except SyntaxError:
        return True
