"""Renders pages: one jinja2 environment, which escapes everything."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup, escape

from conformance.core.verdict import Verdict
from conformance.report.matrix import GLYPHS, mark
from conformance.report.outcome import duration

DEFECTS = "defects.html"
"""The page of the known defects, which other pages link to."""

MATRIX = "matrix.html"
"""The page of the matrix, which a status site does not have."""

_TICKED = re.compile("`([^`]+)`")


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
        "coded": coded,
        "capitalized": capitalized,
        "number": number,
        "nats": nats,
        "case_href": case_href,
    }
    environment.globals["matrix_link"] = matrix_link
    return environment


@dataclass(frozen=True)
class Renderer:
    """Renders the pages of one report.

    Attributes:
        pages: its navigation.
        defects: for each entry about a known defect of the report, the id of the defect.
    """

    pages: tuple[Page, ...] = ()
    environment: jinja2.Environment = field(default_factory=make_environment)
    defects: Mapping[str, str] = field(default_factory=dict)

    def page(self, template: str, here: str, **context: Any) -> str:
        """The text of one page.

        Args:
            here: the page's path in the report's folder, ``cases/x.html``.
            context: the template's own variables.
        """
        made = self.environment.get_template(template)
        return made.render(
            here=here,
            root="../" * here.count("/"),
            pages=self.pages,
            defect_link=self.defect_link,
            has_matrix=self.has_matrix,
            **context,
        )

    @property
    def has_matrix(self) -> bool:
        """Whether the page of the matrix is in the navigation."""
        return any(page.href == MATRIX for page in self.pages)

    def defect_link(self, entry: str) -> str:
        """The address of a known defect, relative to the report's folder; else of its cases.

        It is empty if there is neither.
        """
        if entry in self.defects:
            return f"{DEFECTS}#{self.defects[entry]}"
        return matrix_link(q=entry) if self.has_matrix else ""


def _finalized(value: Any) -> Any:
    """Escapes every text that a template prints, except markup of the templates themselves."""
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def coded(text: str) -> Markup:
    """The text, escaped, with names between backticks as code."""
    return Markup(_TICKED.sub(r"<code>\1</code>", str(escape(shown(text)))))


def capitalized(text: str) -> str:
    """The text with a capital first letter, and the others as they are."""
    return text[:1].upper() + text[1:]


def glyph(verdict: Verdict | str, expected: bool = True, mended: bool = False) -> str:  # noqa: FBT001, FBT002
    """The verdict's letter and its mark, as in the terminal."""
    return GLYPHS[Verdict(verdict)] + mark(expected=expected, mended=mended)


def matrix_link(**filters: str) -> str:
    """The address of the matrix with these filters, relative to the report's folder.

    Args:
        filters: values by the form's field names, and ``case``, the case to open.
    """
    return f"{MATRIX}#{urlencode(filters, errors='replace')}"


def number(value: float | None) -> str:
    """Three digits, without an exponent up to a million; ``not measured`` if there is none."""
    if value is None:
        return "not measured"
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


def nats(value: float | None) -> str:
    """A logprob difference with its unit."""
    return number(value) + ("" if value is None else " nats")


# File names of case pages ------------------------------------------------------------------------

_LONGEST = 80  # characters of the readable part; a file name may have 255 bytes


def case_slug(case_id: str) -> str:
    """A file name, without ``.html``, for a case id of any text.

    The digest distinguishes ids that differ only in characters that file names cannot have, in
    case, or after the part that is kept.
    """
    readable = re.sub(r"[^a-z0-9_]+", "-", case_id.lower()).strip("-")[:_LONGEST]
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable or 'case'}-{digest}"


def case_href(case_id: str) -> str:
    """The path of a case's page in the report's folder."""
    return f"cases/{case_slug(case_id)}.html"


# Texts of the pages: the meanings of verdicts, and safe forms of unsafe text ---------------------

# Control characters except tab and newline, direction marks, zero-width characters, surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)

MEANINGS: Mapping[Verdict, str] = {
    Verdict.EXACT: "all tokens equal, logprob difference within noise",
    Verdict.TIE: "tokens differ only where the single stream's two best tokens are within noise",
    Verdict.POLICY: "the library's own single stream quantizes otherwise than a batch of one",
    Verdict.UNSUPPORTED: "the library itself refuses to do this",
    Verdict.VACUOUS: "the scenario did not reach what it is named for: the case proved nothing",
    Verdict.COST: "right, and took more than a contract allows: positions, rows, reads, bytes",
    Verdict.DRIFT: "tokens equal, logprobs outside noise",
    Verdict.DIVERGED: "tokens differ where that cannot be rounding",
    Verdict.UNSTABLE: "the same run twice gave different numbers",
    Verdict.LEAK: "memory or slots not given back, or work done for removed rows",
    Verdict.PROTOCOL: "lost, extra or duplicated tokens, wrong finish reason, invalid input "
    "accepted",
    Verdict.NAN: "NaN or Inf in the output",
    Verdict.ORACLE: "the single stream disagrees with the pass without a cache",
    Verdict.HANG: "the bound on steps, or the time limit, was reached",
    Verdict.CRASH: "an exception, or a crash of the process",
}


def brief(text: str, most: int) -> str:
    """``text`` on one line, with at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def shown(text: str) -> str:
    """``text`` with invisible and direction-changing characters as their escapes in JSON."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
