"""The page about a new release: what to read first, then what needs no reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.report.cascades import Cascade
from conformance.report.message import rerun_command
from conformance.tools.releases.refreshing import Fate, Refreshed, Sorted

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
        "Models that it cannot load", [f"- {_some(lacking)}{_entries_of(found)}"] if lacking else []
    )
    yield _section("Still there: nothing to read", _listed(found, Fate.STILL))
    yield _section("Not seen: not run, or refused", _listed(found, Fate.UNSEEN))


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
        f"another source: {_some(changed)}" if changed else "its functions are unchanged",
        f"wrong: {_some(wrong)}" if wrong else "",
        f"right: {_some(right)}" if right else "",
    ]
    return f"- {names}: {'; '.join(part for part in parts if part)}"


def _listed(found: Refreshed, fate: Fate) -> list[str]:
    groups = found.of(fate)
    names = [one.entry.id for group in groups for one in group]
    return [f"{len(names)} entries: {', '.join(names)}"] if names else []


def _entries_of(found: Refreshed) -> str:
    """How many entries are about these models alone."""
    lacking = set(found.lacking)
    own = [s for s in found.entries if s.entry.families and set(s.entry.families) <= lacking]
    return f" ({len(own)} entries are about these alone)" if own else ""


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
