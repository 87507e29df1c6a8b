"""File names of case pages."""

from __future__ import annotations

import hashlib
import re

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
