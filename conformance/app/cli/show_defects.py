"""``conformance show defects``: what is wrong upstream, as a list or one defect in full."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.app.cli.consoles import new_console
from conformance.app.cli.printing import say
from conformance.checks.expectations import Refusal, load_expectations
from conformance.checks.expectations.issues import issue_scripts
from conformance.core.errors import ConformanceError
from conformance.core.known_defect import KnownDefect, releases
from conformance.core.nearest import did_you_mean
from conformance.report.defects_text import as_dict, defect_text, issue_brief, labelled, list_text
from conformance.run.coverage import defects_upstream
from conformance.run.registry import Registry, select

_WIDTH = 100  # columns of text, at most


@dataclass(frozen=True)
class Wanted:
    """Which defects are listed; empty: all.

    Attributes:
        libraries: globs, with hyphens or underscores.
        families: globs.
        kinds: names of ``Severity``.
    """

    libraries: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return bool(self.libraries or self.families or self.kinds)


def show_defects(
    registry: Registry,
    name: str | None,
    wanted: Wanted,
    folder: Path | None,
    *,
    as_json: bool,
    issue: bool = False,
) -> None:
    """Print the defects that are wanted, or the one with this id.

    Args:
        folder: the expectations, instead of the project's own.
        issue: print the text of an upstream issue about it.

    Raises:
        ConformanceError: there is no such defect, family or library, or no issue text.
    """
    known = load_expectations(folder, registry.expectations)
    found = defects_upstream(registry, known)
    width = min(new_console().width, _WIDTH)
    if issue:
        say(_issue(found, name, folder))
        return
    if name is None:
        chosen = chosen_defects(found, wanted)
        if as_json:
            say(_json([as_dict(one) for one in chosen]))
        else:
            say(list_text(chosen, releases(chosen), width=width))
        return
    if wanted:
        raise ConformanceError("--library, --family and --class are about the list: name no ID")
    defects = {entry: one for one in found for entry in one.entries}
    refusals = {refusal.id: refusal for refusal in known.refusals}
    if name in defects:
        one = defects[name]
        say(_json(as_dict(one)) if as_json else defect_text(one, name, width=width))
    elif name in refusals:
        refusal = refusals[name]
        say(_json(refusal) if as_json else _refusal_text(refusal, width=width))
    else:
        near = did_you_mean(name, [*defects, *refusals])
        raise ConformanceError(
            f"there is no known defect {name}{near or ' (`conformance show defects` lists all)'}"
        )


def _issue(found: Sequence[KnownDefect], name: str | None, folder: Path | None) -> str:
    """The text of an upstream issue, with a script and its output that are kept."""
    scripts = issue_scripts(folder)
    there = {one.id: one for one in found if one.id in scripts}
    if name is None:
        raise ConformanceError(f"--issue: name an ID; there are texts of {', '.join(there)}")
    if name not in there:
        raise ConformanceError(
            f"no issue text of {name} is kept; conformance repro {name} --issue writes one, with a "
            f"script that it runs{did_you_mean(name, there)}"
        )
    return issue_brief(there[name], scripts[name])


def chosen_defects(found: Sequence[KnownDefect], wanted: Wanted) -> tuple[KnownDefect, ...]:
    """The wanted ones, in their order.

    Raises:
        ConformanceError: a glob matches no library, or no family with a defect.
    """
    libraries = tuple(glob.replace("_", "-") for glob in wanted.libraries)
    packages = select(sorted({one.package for one in found}), libraries, what="library")
    having = sorted({family for one in found for family in one.families})
    families = select(having, wanted.families, what="family with a known defect")
    return tuple(
        one
        for one in found
        if one.package in packages
        if not wanted.families or set(one.families) & set(families)
        if not wanted.kinds or one.severity.value in wanted.kinds
    )


def _refusal_text(refusal: Refusal, *, width: int) -> str:
    """What a library refuses, and why."""
    shown = (
        ("families", ", ".join(refusal.families)),
        ("scenarios", ", ".join(refusal.scenarios)),
        ("message", refusal.text),
        ("why", " ".join(refusal.why.split())),
    )
    head = f"{refusal.id}: no defect, {refusal.package} refuses it itself"
    return labelled(head, shown, width=width)


def _json(found: Any) -> str:
    return json.dumps(msgspec.to_builtins(found), indent=2)
