"""The known upstream defects as text: a list for a terminal, one in full, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from conformance.core.grouping import grouped
from conformance.core.known_defect import MODEL, IssueScript, KnownDefect
from conformance.report.outcome import count, listed

_NAMED = 12  # families named in the text about one defect
_LABEL = 12  # columns


def title_of(packages: Mapping[str, str]) -> str:
    """``mlx-lm 0.32.2 and mlx-vlm 0.7.10``.

    Args:
        packages: the release of each.
    """
    return " and ".join(f"{name} {release}" for name, release in packages.items())


def reach(defect: KnownDefect) -> str:
    """In which families it shows, and whether a server meets it: the end of a sentence."""
    names, package = defect.families, defect.package
    who = names[0] if len(names) == 1 else count(len(names), "family")
    where = "" if defect.served else ", not on its server"
    device = f", only on {defect.device}" if defect.device else ""
    return f"in {who} of {package}{where}{device}"


def list_text(defects: Sequence[KnownDefect], packages: Mapping[str, str], *, width: int) -> str:
    """Each defect with its kind, its reach and what a user suffers.

    Args:
        packages: the newest release of each package that the defects are about.
        width: columns.
    """
    what = count(len(defects), "known upstream defect")
    lines = [f"{what} of {title_of(packages)}, those of most reach first"]
    for number, defect in enumerate(defects, start=1):
        head = f"{number:>3} {defect.id}: {defect.severity.label} {reach(defect)}"
        lines += ["", *_filled(head, width), *_filled(f"    {defect.suffers}", width)]
    return "\n".join([*lines, "", "Each in full: conformance show defects ID"])


def defect_text(defect: KnownDefect, name: str, *, width: int) -> str:
    """All that is known of one defect.

    Args:
        name: the entry that was asked for, which may be another one than the first.
    """
    head = f"{defect.id}: {defect.severity.label}"
    head = head if name == defect.id else f"{name} is a part of {head}"
    return labelled(head, parts(defect), width=width)


def labelled(head: str, shown: Iterable[tuple[str, str]], *, width: int) -> str:
    """A line, and below it texts with their labels."""
    lines = [head]
    for label, text in shown:
        start = f"  {label + ':':<{_LABEL}}"
        lines += _wrapped(text, width, first=start, rest=" " * len(start))
    return "\n".join(lines)


def parts(defect: KnownDefect) -> Iterator[tuple[str, str]]:
    """What is known of it, each part with its label."""
    yield "suffers", defect.suffers
    names = listed(defect.families, _NAMED)
    yield "families", f"{len(defect.families)}: {names}" if len(defect.families) > 1 else names
    yield "releases", f"{defect.package} {defect.versions}"
    yield "server", "meets it" if defect.served else "does not meet it"
    if defect.device:
        yield "device", f"only {defect.device}"
    if defect.scenarios:
        yield "scenarios", ", ".join(defect.scenarios)
    yield "where", ", ".join(defect.where)
    yield "cause", defect.why
    yield "needs", needs_of(defect)
    if defect.needs:
        yield "run it", lock_command(defect)
    yield "script", script_of(defect)
    yield "mend", defect.mend or "none: nothing is seen behind it"
    yield "issue", issue_command(defect)
    if others := defect.entries[1:]:
        yield "entries", f"also {', '.join(others)}"


def needs_of(defect: KnownDefect) -> str:
    """What its own schedules have in them, by family."""
    alike = grouped(defect.needs, defect.needs.__getitem__)
    said = "; ".join(f"{needs} (in {', '.join(names)})" for needs, names in alike.items())
    return said or "no schedule of its own is stored"


def lock_command(defect: KnownDefect) -> str:
    """The command that runs its own schedules."""
    return f"conformance known lock {defect.id}"


def script_of(defect: KnownDefect) -> str:
    """Where its script is, or the command that writes it."""
    return f"{defect.script} of the repository" if defect.script else repro_command(defect)


def repro_command(defect: KnownDefect) -> str:
    """The command that writes its script."""
    return f"conformance repro {defect.id}"


def issue_command(defect: KnownDefect) -> str:
    """The command that prints the text of an upstream issue about it."""
    return f"{repro_command(defect)} --issue"


def issue_brief(defect: KnownDefect, shown: IssueScript) -> str:
    """An upstream issue as Markdown: facts, a short script, and what it printed."""
    where = ", ".join(f"`{place}`" for place in defect.where)
    server = f", of a server with {MODEL}" if shown.served else ""
    return "\n".join(
        (
            f"# {defect.suffers.rstrip('.')}",
            "",
            f"{shown.release}; releases with it: `{defect.versions}`.",
            "",
            "```python",
            shown.script.rstrip(),
            "```",
            "",
            f"It exits with 1 as long as this is so. It prints{server}:",
            "",
            "```text",
            shown.output,
            "```",
            "",
            f"**Cause** ({where}): {defect.why}",
            "",
            f"**Right would be**: {defect.mend}" if defect.mend else "No repair was tried.",
        )
    )


def as_dict(defect: KnownDefect) -> dict[str, Any]:
    """The defect as data for JSON."""
    return {
        "id": defect.id,
        "severity": defect.severity.value,
        "suffers": defect.suffers,
        "package": defect.package,
        "versions": defect.versions,
        "families": list(defect.families),
        "scenarios": list(defect.scenarios),
        "cases": defect.cases,
        "server": defect.served,
        "device": defect.device,
        "where": list(defect.where),
        "cause": defect.cause,
        "why": defect.why,
        "script": defect.script,
        "repro": repro_command(defect),
        "issue": issue_command(defect),
        "mend": defect.mend,
        "needs": dict(defect.needs),
        "lock": lock_command(defect) if defect.needs else "",
        "entries": list(defect.entries),
    }


def _filled(text: str, width: int) -> list[str]:
    return _wrapped(text, width, first="", rest=" " * 4)


def _wrapped(text: str, width: int, *, first: str, rest: str) -> list[str]:
    """The text's lines; ids, paths and commands stay whole."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
