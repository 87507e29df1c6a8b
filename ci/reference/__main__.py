"""Writes docs/reference/, docs/defects.md and a table of docs/servers.md: ``python ci/reference``.

All are derived from the code and from ``expectations/``.

A test compares the committed pages with this output.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

sys.path.insert(0, str(Path(__file__).parent))

import formats
import options

from conformance import Capability, Engine, Fault, Library, PrefixReuse, ReproCalls, Scenario
from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.defects import issue_scripts
from conformance.core.known_defect import TOP, Severity, by_severity, releases
from conformance.power.faults import registry_with_faults
from conformance.report.defects_text import (
    issue_brief,
    issue_command,
    reach,
    repro_command,
    title_of,
)
from conformance.report.markdown import between, table
from conformance.run import hookspecs
from conformance.run.coverage import defects_upstream
from conformance.run.registry import Registry

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "docs"


def pages() -> dict[str, str]:
    """The text of every page, by its path in docs/."""
    registry = registry_with_faults()
    scenarios = sorted(registry.scenarios.values(), key=lambda scenario: scenario.rung)
    found: dict[str, dict[str, Any]] = {
        "cli": {"commands": options.commands()},
        "pytest": {"options": options.pytest_options()},
        "hooks": {"hooks": _hooks(), "parts": [_part(kind) for kind in _PARTS]},
        "formats": {"formats": formats.published()},
        "scenarios": {"scenarios": [_scenario(registry, each) for each in scenarios]},
        "faults": {
            "classes": _faults(registry),
            "count": len(registry.faults),
            "historic": sum(map(historic, registry.faults.values())),
        },
        "defects": _defects(registry),
    }
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, from our own code
    )
    environment.filters.update(cell=cell, linked=linked, escaped=escaped, removed=str.removeprefix)
    environment.filters.update(
        reach=reach, repro=repro_command, issue=issue_command, brief=issue_brief
    )
    rendered = {
        f"{'' if name == 'defects' else 'reference/'}{name}.md": (
            environment.get_template(f"{name}.md.j2").render(**values)
        )
        for name, values in found.items()
    }
    servers = (TARGET / SERVERS).read_text(encoding="utf-8")
    causes = "\n".join(table(_HEAD, _causes()))
    return {**rendered, SERVERS: between(servers, BEGIN, END, causes)}


SERVERS = "servers.md"
BEGIN, END = "<!-- causes: begin -->", "<!-- causes: end -->"
_HEAD = ("server", "what its users suffer", "where", "entry", "shown by")


def _causes() -> Iterator[tuple[str, ...]]:
    """A row for each known defect of a server."""
    for entry in load_expectations().defects:
        shown = ", ".join(f"`{name}`" for name in entry.verdicts if name.startswith(_SERVED))
        for server in (name.removesuffix("*") for name in entry.engines if "_server" in name):
            where = f"`{cell(entry.where)}`" if entry.where else ""
            said = entry.suffers or " ".join(entry.why.split()).partition(". ")[0]
            yield f"`{server}`", escaped(said), where, f"`{entry.id}`", shown


_SERVED = ("served_", "cost_served")


def cell(text: str) -> str:
    """Text for one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def escaped(text: str) -> str:
    """Text whose characters all show as they are."""
    return re.sub(r"([\\`*<\[\]]|__)", r"\\\1", cell(text))


_HOMES = {"mlx-lm": "ml-explore/mlx-lm", "mlx-vlm": "Blaizzy/mlx-vlm"}


def linked(source: str) -> str:
    """A fault's source with a link for each library thread that it names."""
    return re.sub(
        r"(mlx-lm|mlx-vlm) #(\d+)",
        lambda m: f"[{m[0]}](https://github.com/{_HOMES[m[1]]}/issues/{m[2]})",
        cell(source),
    )


def historic(fault: Fault) -> bool:
    """Whether a fault's source is public: a pull request, an issue or a release."""
    return re.search(r"#\d+|\b\d+\.\d+\.\d+\b", fault.source) is not None


_PARTS = (Engine, Capability, PrefixReuse, ReproCalls, Library, Scenario, Fault)


def _hooks() -> list[dict[str, str]]:
    return [
        {"name": name, "text": inspect.getdoc(hook) or "", "gives": hook.__annotations__["return"]}
        for name, hook in vars(hookspecs).items()
        if name.startswith("conformance_")
    ]


def _part(kind: type) -> dict[str, Any]:
    """A class that plugins instantiate or subclass: its text, and those of its public methods."""
    methods = [
        {"name": name, "signature": _signature(member), "text": inspect.getdoc(member) or ""}
        for name, member in vars(kind).items()
        if not name.startswith("_") and isinstance(inspect.unwrap(_plain(member)), type(_plain))
    ]
    return {
        "name": kind.__name__,
        "text": inspect.getdoc(kind) or "",
        "methods": methods,
    }


def _plain(member: Any) -> Any:
    return member.__func__ if isinstance(member, classmethod | staticmethod) else member


def _signature(member: Any) -> str:
    return str(inspect.signature(_plain(member))).replace("'", "")


def _scenario(registry: Registry, scenario: Scenario) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "rung": scenario.rung,
        "summary": scenario.summary,
        "text": inspect.getdoc(scenario.make) or "",
        "needs": sorted(need.value for need in scenario.needs),
        "witnesses": [witness.name for witness in scenario.witnesses],
        "faults": sum(scenario.name in fault.scenarios for fault in registry.faults.values()),
    }


def _faults(registry: Registry) -> list[dict[str, Any]]:
    by_class: dict[str, list[Fault]] = {}
    for fault in sorted(registry.faults.values(), key=lambda fault: fault.key):
        by_class.setdefault(fault.fault_class, []).append(fault)
    return [{"name": name, "faults": found} for name, found in sorted(by_class.items())]


_NAMED = 12  # families listed by name


def _defects(registry: Registry) -> dict[str, Any]:
    found = defects_upstream(registry, load_expectations())
    weights = (f"{kind.weight} for {kind.label}" for kind in Severity if kind.weight)
    return {
        "title": title_of(releases(found)),
        "count": len(found),
        "kinds": by_severity(found),
        "top": found[:TOP],
        "scripts": issue_scripts(),
        "rest": by_severity(found[TOP:]),
        "weights": ", ".join(weights),
        "most": _NAMED,
    }


if __name__ == "__main__":
    for file, text in pages().items():
        (TARGET / file).write_text(text, encoding="utf-8")
        print(f"docs/{file}")
