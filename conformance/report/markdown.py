"""Markdown that GitHub shows literally, whatever the names of models, configs or engines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_ROOM = 200  # bytes, for the line with the number of omitted lines

# Control characters, and characters that change the direction of text.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str) -> str:
    """``text`` with single blanks for white space and U+FFFD for invisible characters."""
    return _UNSEEN.sub("\ufffd", " ".join(text.split()))


def code(text: str) -> str:
    """``text`` as code within a table: no markup, no HTML, no mention of a user takes effect."""
    line = one_line(text)
    if not line:
        return ""
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    blank = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{blank}{line}{blank}{fence}".replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; cells are Markdown already."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:]]


def between(text: str, begin: str, end: str, body: str) -> str:
    """Insert ``body`` between the marks in ``text``; without both marks, return ``body`` alone."""
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    return f"{before}{begin}\n\n{body}\n\n{end}{after}" if begun and ended else f"{body}\n"


def limited(lines: Sequence[str], most_bytes: int) -> str:
    """The first lines that fit into this many bytes of UTF-8, and how many are omitted."""
    kept: list[str] = []
    size = 0
    whole = sum(len(line.encode()) + 1 for line in lines) <= most_bytes
    if not whole and most_bytes < _ROOM:
        return ""
    for index, line in enumerate(lines):
        size += len(line.encode()) + 1
        if not whole and size > most_bytes - _ROOM:
            kept += ["", f"{len(lines) - index} more lines are left out."]
            break
        kept.append(line)
    return "\n".join(kept) + "\n"
