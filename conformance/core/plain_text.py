"""Keeps text from files and models from being a command to the terminal or a CI system's runner.

Source: GitHub's runner takes a line that begins with ``::name``, after any blanks, for a command,
and a line with ``##[name]`` anywhere in it (``ActionCommand.cs``).
"""

from __future__ import annotations

import re

# Control characters except newline and tab; characters that change the direction of text; halves of
# characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COMMAND = re.compile(r"^(?P<blank>\s*)::", re.M)


def plain(text: str) -> str:
    """``text`` with invisible characters escaped, and without commands for a runner."""
    shown = _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return _COMMAND.sub(r"\g<blank>\\::", shown).replace("##[", r"#\#[")


def plain_line(text: str) -> str:
    """``plain`` text on one line: newlines are escaped, too."""
    return plain(text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t"))


def is_plain(name: str) -> bool:
    """Whether a name has only visible characters."""
    return plain_line(name) == name
