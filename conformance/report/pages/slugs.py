"""File names of case pages."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 80  # characters of what a person reads in it; a file name may have 255 bytes


def case_slug(case_id: str) -> str:
    """A file name, without ``.html``, for a case id of any text.

    The digest tells apart what only differs in signs that a file name cannot have, in case, or
    after the part that is kept.
    """
    words = re.sub(r"[^a-z0-9_]+", "-", case_id.lower()).strip("-")[:_LONGEST]
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{words or 'case'}-{digest}"


def case_href(case_id: str) -> str:
    """Where the page of a case is, from the folder's top."""
    return f"cases/{case_slug(case_id)}.html"
