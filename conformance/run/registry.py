"""The registry: everything that plugins provide, checked once and looked up by name."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from conformance.core.engine import Capability, Engine, equipped
from conformance.core.errors import ConformanceError, PluginError
from conformance.core.family import Family, load_family
from conformance.core.faults import Fault
from conformance.core.library import Library
from conformance.core.library_source import versions_of
from conformance.core.mends import Mend
from conformance.core.names import did_you_mean, means
from conformance.core.unavailable import Unavailable, sentences
from conformance.core.verdict import CaseId
from conformance.run.collecting import (
    collect,
    collect_engines,
    folders,
    name_of,
    of_libraries,
    unique,
    with_engines,
)
from conformance.run.hosting import Host, origin
from conformance.scenarios import Scenario


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin and where it came from."""

    name: str
    origin: str


@dataclass(frozen=True)
class Registry:
    """Everything that can be run, by name; ``unavailable`` is what is left out."""

    libraries: Mapping[str, Library]
    families: Mapping[tuple[str, str], Family]
    engines: Mapping[str, type[Engine]]
    scenarios: Mapping[str, Scenario]
    faults: Mapping[str, Fault]
    plugins: tuple[Plugin, ...]
    mends: Mapping[str, Mend] = field(default_factory=dict)
    expectations: tuple[Path, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()

    def select_engines(self, globs: Iterable[str]) -> tuple[str, ...]:
        """The names of the engines that match any of the globs; without globs, of all engines.

        Raises:
            ConformanceError: a pattern matches nothing; for an engine that is left out, the message
                gives the reason.
        """
        globs = tuple(globs)
        for glob in globs:
            lacking = self.lacking([glob])
            if lacking and not any(means(glob, name) for name in self.engines):
                raise ConformanceError(
                    f"engine {glob!r} cannot be used here: {sentences(lacking)[0]}"
                )
        return select(self.engines, globs, what="engine")

    def usual_engines(self, names: Sequence[str]) -> tuple[str, ...]:
        """The engines that can be used here; all if none can, which is an error."""
        return tuple(name for name in names if name in self.engines) or tuple(names)

    def lacking(
        self, globs: Sequence[str], *, also: Collection[str] = ()
    ) -> tuple[Unavailable, ...]:
        """Left-out parts that a user of these engines could miss.

        Args:
            also: include the hooks of faults and of mends.
        """
        needless = {"conformance_faults", "conformance_mends"}.difference(also)
        return tuple(
            one
            for one in self.unavailable
            if one.hook not in needless
            if any(means(glob, name) for name in one.engines for glob in globs)
        )

    def versions_of(self, engine: str) -> dict[str, str]:
        """The versions behind an engine's results: its library and its own packages."""
        kind = self.engines[engine]
        found = dict(self.libraries[kind.library].versions())
        for package in kind.packages:
            found |= versions_of(package)
        return found

    def mend_of(self, defect: str) -> Mend | None:
        """The mend of the known defect with this id."""
        return next((mend for mend in self.mends.values() if defect in mend.defects), None)

    def families_of(self, engine: type[Engine]) -> tuple[Family, ...]:
        """The families that an engine can decode, by name."""
        return tuple(f for (library, _), f in self.families.items() if library == engine.library)

    def family_of(self, case: CaseId) -> Family:
        """The family of a case, as its engine runs it."""
        kind = self.engines[case.engine]
        return kind.variant(self.families[kind.library, case.family])

    def group_of(self, case: CaseId) -> str:
        """Cases of one group share a model and its oracle, so they belong in one process.

        Each scenario of a server that a run starts has a server of its own, and waits for it most
        of the time.
        """
        if self.waits(case):
            return f"{case.engine}/{case.family}/{case.scenario}"
        return f"{self.engines[case.engine].library}/{case.family}"

    def waits(self, case: CaseId) -> bool:
        """Whether it waits most of the time, for a server that it starts."""
        kind = self.engines[case.engine]
        return Capability.SERVED in kind.capabilities and not kind.elsewhere

    def scenarios_for(
        self, engine: type[Engine], family: Family | None = None
    ) -> tuple[Scenario, ...]:
        """The scenarios that an engine can express, in the order of the ladder.

        With ``family``, only those that apply to it.
        """
        return tuple(
            scenario
            for scenario in self.scenarios.values()
            if not scenario.lacking(engine.capabilities)
            if family is None or not scenario.applies(equipped(family, engine))
        )

    def left_out(self, engine: type[Engine], family: Family) -> dict[str, str]:
        """The scenarios that do not apply to this family on this engine, with the reasons."""
        reasons = {}
        for scenario in self.scenarios.values():
            reason = scenario.lacking(engine.capabilities)
            reason = reason or scenario.applies(equipped(family, engine))
            if reason:
                reasons[scenario.name] = reason
        return reasons


def build_registry(
    extra: Iterable[object] = (),
    *,
    family_files: Iterable[Path] = (),
    engines: Iterable[str] = (),
) -> Registry:
    """Collect what all plugins provide, and the families of ``family_files``.

    A family file replaces a plugin's family of the same name and library.

    Args:
        extra: plugins in addition to the installed ones.
        engines: globs of the engines that are needed. Plugins that name their engines, none of
            which is needed, are left out, unless the other plugins' objects are for their
            libraries.

    A part of an installed plugin is left out if a hook raises, returns objects of a wrong type,
    with a bad name or a name that is taken, or objects for a missing library.
    ``Registry.unavailable`` names these parts.

    Raises:
        PluginError: an extra plugin does one of these; the message names the plugin.
        FamilyError: one of ``family_files`` is malformed.
    """
    extra, family_files, globs = tuple(extra), tuple(family_files), tuple(engines)
    host = Host(extra)
    if left_out := _without(host, globs):
        for plugin in left_out:
            host.manager.unregister(plugin)
        with contextlib.suppress(PluginError):  # a real error is raised again below
            found = _registry(host, family_files, whole=False)
            if all(any(means(glob, name) for name in found.engines) for glob in globs):
                return found
        host = Host(extra)
    return _registry(host, family_files)


def _without(host: Host, globs: tuple[str, ...]) -> list[object]:
    """The plugins whose engines are known by name, and none of which is needed."""
    named = host.call("conformance_engine_names") if globs else []
    return [
        host.manager.get_plugin(plugin)
        for plugin, names in named
        if not any(means(glob, name) for name in names for glob in globs)
    ]


def _registry(host: Host, family_files: tuple[Path, ...], *, whole: bool = True) -> Registry:
    """The contents of a host's plugins; unless these are all, a missing library is an error."""
    libraries = collect(host, "conformance_libraries", Library)  # type: ignore[type-abstract]
    families = collect(host, "conformance_families", Family)
    engines = collect_engines(host)
    scenarios = collect(host, "conformance_scenarios", Scenario)
    faults = collect(host, "conformance_faults", Fault)
    mends = collect(host, "conformance_mends", Mend)
    named = [("--family-file", load_family(path)) for path in family_files]
    replaced = {_family_key(family) for _, family in named}
    families = [pair for pair in families if _family_key(pair[1]) not in replaced] + named
    known = unique(host, "library", libraries, key=name_of)
    check = host.part_of if whole else _refusing
    engines = of_libraries(check, "engine", engines, known, lambda engine: engine.library)
    families = of_libraries(check, "family", families, known, lambda one: one.facts.library)
    made = unique(host, "engine", engines, key=name_of)
    return Registry(
        libraries=known,
        families=dict(sorted(unique(host, "family", families, key=_family_key).items())),
        engines=made,
        scenarios=unique(
            host, "scenario", sorted(scenarios, key=lambda pair: pair[1].rung), key=name_of
        ),
        faults=unique(host, "fault", faults, key=lambda fault: fault.key),
        mends=unique(host, "mend", mends, key=lambda mend: mend.key),
        expectations=folders(host),
        plugins=tuple(Plugin(name, origin(p)) for name, p in host.manager.list_name_plugin()),
        unavailable=with_engines(host, libraries, made),
    )


def select(names: Iterable[str], patterns: Iterable[str], *, what: str) -> tuple[str, ...]:
    """The ``names`` that match any of the globs; without globs, all.

    Raises:
        ConformanceError: a pattern matches nothing.
    """
    known, globs = tuple(names), tuple(patterns)
    matches = means if what == "engine" else lambda glob, name: fnmatchcase(name, glob)
    for glob in globs:
        if not any(matches(glob, name) for name in known):
            some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            near = did_you_mean(glob, known)
            there = near or f"; there are {some}"
            raise ConformanceError(f"no {what} matches {glob!r}{there}{_hint(what)}")
    if not globs:
        return known
    return tuple(name for name in known if any(matches(glob, name) for glob in globs))


def _hint(what: str) -> str:
    """The command that lists all names of a kind, if there is one."""
    listed = {"engine": "engines", "family": "families", "scenario": "scenarios"}.get(what)
    return f" (`conformance show {listed}` shows all)" if listed else ""


def _family_key(family: Family) -> tuple[str, str]:
    return (family.facts.library, family.name)


def _refusing(_plugin: str, _hook: str, _part: str) -> contextlib.AbstractContextManager[None]:
    """Used instead of ``Host.part_of`` if every problem is an error."""
    return contextlib.nullcontext()
