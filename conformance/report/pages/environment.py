"""Renders pages: one jinja2 environment, which escapes everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import jinja2

from conformance.core.verdict import Verdict
from conformance.report.matrix import GLYPHS, mark
from conformance.report.outcome import duration
from conformance.report.pages.slugs import case_href
from conformance.report.pages.words import shown


@dataclass(frozen=True)
class Page:
    """An entry of the navigation; ``href`` is relative to the report's folder."""

    href: str
    label: str


def make_environment() -> jinja2.Environment:
    """The environment of all templates; an undefined name in a template is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance.report.pages", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "sort_keys": False}
    environment.filters |= {
        "glyph": glyph,
        "duration": duration,
        "number": number,
        "nats": nats,
        "case_href": case_href,
    }
    environment.globals["matrix_link"] = matrix_link
    return environment


def render_page(
    environment: jinja2.Environment,
    template: str,
    *,
    here: str,
    pages: tuple[Page, ...],
    **context: Any,
) -> str:
    """The text of one page.

    Args:
        here: the page's path in the report's folder, ``cases/x.html``.
        pages: the navigation.
        context: the template's own variables.
    """
    root = "../" * here.count("/")
    return environment.get_template(template).render(here=here, root=root, pages=pages, **context)


def _finalized(value: Any) -> Any:
    """Escapes every text that a template prints, except markup of the templates themselves."""
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def glyph(verdict: Verdict | str, expected: bool = True, mended: bool = False) -> str:  # noqa: FBT001, FBT002
    """The verdict's letter and its mark, as in the terminal."""
    return GLYPHS[Verdict(verdict)] + mark(expected=expected, mended=mended)


def matrix_link(**filters: str) -> str:
    """The address of the matrix with these filters, relative to the report's folder.

    Args:
        filters: values by the form's field names, and ``case``, the case to open.
    """
    return f"matrix.html#{urlencode(filters, errors='replace')}"


def number(value: float | None) -> str:
    """Three digits, without an exponent up to a million; ``not measured`` if there is none."""
    if value is None:
        return "not measured"
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


def nats(value: float | None) -> str:
    """A logprob difference with its unit."""
    return number(value) + ("" if value is None else " nats")
