"""The registry for a command, which reports plugins that are left out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from conformance.app.cli.printing import say
from conformance.checks.expectations import Expectations, load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.core.names import did_you_mean
from conformance.core.unavailable import sentences
from conformance.core.verdict import CaseId
from conformance.run.registry import Registry, build_registry, select
from conformance.run.selection import DTYPES, Selection, cases
from conformance.tools.explore.exclusions import clean

_NO_FAULTS = "conformance/power is not installed, so no fault is known here"


def registry_of(
    extra: Iterable[object] = (),
    *,
    family_files: Iterable[Path] = (),
    engines: Iterable[str] = (),
    faults: bool = False,
) -> Registry:
    """``build_registry``, and sentences about the parts of installed plugins that are left out.

    Args:
        faults: with the faults of this project, if they are installed.
    """
    found = build_registry(extra, family_files=family_files, engines=engines)
    if faults:
        found = _with_faults(found)
    for line in sentences(found.unavailable):
        say(line, err=True)
    return found


def _with_faults(found: Registry) -> Registry:
    try:
        from conformance.power.faults import with_faults  # noqa: PLC0415 - it may be missing
    except ModuleNotFoundError as error:
        if not f"{error.name}.".startswith("conformance.power."):
            raise
        say(_NO_FAULTS, err=True)
        return found
    return with_faults(found)


# The families that options select ----------------------------------------------------------------


def chosen_families(
    registry: Registry, engines: tuple[str, ...], patterns: tuple[str, ...]
) -> list[tuple[Library, Family]]:
    """The selected families of these engines' libraries, with their library.

    Raises:
        ConformanceError: a glob matches nothing.
    """
    libraries = {registry.engines[name].library for name in engines}
    names = sorted({name for library, name in registry.families if library in libraries})
    chosen = set(select(names, patterns, what="family"))
    return [
        (registry.libraries[library], family)
        for (library, name), family in registry.families.items()
        if library in libraries and name in chosen
    ]


def named_families(registry: Registry, engine: str, patterns: tuple[str, ...]) -> list[Family]:
    """The families that globs name and the engine can decode; without globs, all of these.

    Raises:
        ConformanceError: a glob matches no family of any engine.
    """
    named = set(select((f.name for f in registry.families.values()), patterns, what="family"))
    return [f for f in registry.families_of(registry.engines[engine]) if f.name in named]


# Finds the case that a command's argument names --------------------------------------------------


def case_of(registry: Registry, text: str) -> CaseId:
    """The case with the id ``text``.

    Raises:
        ResultError: the text is not a case id.
        ConformanceError: there is no such case; the message suggests similar names.
    """
    case = CaseId.parse(text)
    if registry.lacking((case.engine,)):
        registry.select_engines((case.engine,))  # names parts that are left out
    everything = Selection(engines=tuple(registry.engines), dtypes=DTYPES, seeds=(case.seed,))
    known = cases(registry, everything)
    if case not in known:
        raise ConformanceError(f"there is no case {case}{near(str(case), map(str, known))}")
    return case


def near(name: str, known: Iterable[str]) -> str:
    """A similar known name, or where to look, as the end of a sentence."""
    return did_you_mean(name, known) or " (`conformance show` shows what there is)"


# The families that ``conformance explore`` searches, and objects that a worker makes once --------


@cache
def registry() -> Registry:
    """The registry, made once in each process."""
    return registry_of(faults=True)


@cache
def expectations() -> Expectations:
    """The expectations, read once in each process."""
    return load_expectations()


def chosen_pairs(
    engines: tuple[str, ...], families: tuple[str, ...], *, known: bool = False, hint: str = ""
) -> list[tuple[str, str]]:
    """Each selected engine with each selected family that it can decode.

    Args:
        known: include families with known defects.
        hint: end of the error message if no selected family is without a known defect.

    Raises:
        ConformanceError: there is no such pair, or a glob matches nothing.
    """
    pairs = [
        (engine, family.name)
        for engine in registry().select_engines(engines)
        for family in named_families(registry(), engine, families)
    ]
    found = [pair for pair in pairs if known or clean(expectations(), *pair)]
    if not found:
        selected = ", ".join(sorted({name for _, name in pairs})) or "none of these engines"
        raise ConformanceError(f"no family without a known defect is selected: {selected}{hint}")
    return found
