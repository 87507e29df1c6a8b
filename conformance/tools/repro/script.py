"""Writes a script that needs only mlx, NumPy and the library."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import re
from typing import Any

import jinja2

from conformance.core.errors import NoScriptError
from conformance.tools.repro.code import WIDTH
from conformance.tools.repro.found import Found
from conformance.tools.repro.refusing import Reason
from conformance.tools.repro.template_values import docstring, template_values

MOST_LINES = 60
"""A length that a maintainer reads in two minutes."""

# In nats; for weights without measured noise, smaller differences do not count.
_COARSE = 0.01


class Terse(enum.IntEnum):
    """What is left out of a script to shorten it; each level includes the previous ones."""

    NOTHING = 0
    REASON = 1  # the reason for the defect; its place remains
    SPACE = 2  # empty lines
    TOWERS = 3  # the sizes of towers that text-only prompts do not use
    RECIPE = 4  # the weights' own scales: all matrices have gain 1


def write_scripts(found: Found, *, unittest: bool = False) -> list[str]:
    """The script's text, with as much explanation as there is room for.

    If only scripts with a reduced model are short enough, several are returned, since not every one
    need show the defect.

    Raises:
        NoScriptError: no script can be written; says why.
    """
    texts = {terse: rendered(found, unittest=unittest, terse=terse) for terse in Terse}
    short = {t: text for t, text in texts.items() if unittest or text.count("\n") <= MOST_LINES}
    if not short:
        least = min(text.count("\n") for text in texts.values())
        message = f"the script has {least} lines, {MOST_LINES} are the most"
        raise NoScriptError(f"{found.case}: {message}", Reason.LONG)
    if min(short) < Terse.TOWERS:
        return [short[min(short)]]
    return list(dict.fromkeys(short.values()))


def fits(found: Found) -> bool:
    """Whether a script with the unreduced model is short enough, without reason and empty lines."""
    return rendered(found, terse=Terse.SPACE).count("\n") <= MOST_LINES


def rendered(found: Found, *, unittest: bool = False, terse: Terse = Terse.NOTHING) -> str:
    """The script, whatever its length.

    Raises:
        NoScriptError: no script can be written.
    """
    if terse >= Terse.TOWERS and not any(found.processed.values()):
        bare: dict[str, Any] = {
            name: {} for name in ("vision_config", "audio_config") if name in found.config
        }
        found = dataclasses.replace(found, config=found.config | bare)
    values = template_values(found, WIDTH - 8 * unittest)
    if terse >= Terse.REASON:
        values["text"] = docstring(found, found.place)
    if terse >= Terse.RECIPE or found.kind.called:
        values |= {"weights": "", "bound": f"{max(found.bound, _COARSE):.1g}"}
    template = _environment().get_template("script.py.j2")
    whole = _spaced(template.render(unittest=unittest, **_names(found), **values))
    if terse >= Terse.SPACE:
        whole = re.sub(r"\n\n+", "\n", whole)
    ast.parse(whole)
    return whole


def _spaced(text: str) -> str:
    """The text with one empty line before each function and no two consecutive empty lines."""
    lines: list[str] = []
    for line in map(str.rstrip, text.strip().splitlines()):
        opens = line.lstrip().startswith("def ") and not lines[-1].startswith("class ")
        if opens and lines[-1]:
            lines.append("")
        if line or lines[-1]:
            lines.append(line)
    return "\n".join(lines) + "\n"


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("conformance.tools.repro")
    return jinja2.Environment(
        loader=loader, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )


def _names(found: Found) -> dict[str, Any]:
    words = re.findall(r"[A-Za-z0-9]+", f"{found.case.family} {found.case.scenario}")
    return {
        "class_name": "Test" + "".join(word.capitalize() for word in words),
        "method_name": "test_" + "_".join(words).lower(),
    }
