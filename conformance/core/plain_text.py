"""Text from files and models is never a command to the terminal, nor to the runner of a CI system.

Source: GitHub's runner takes a line that begins with ``::name`` for a command, blanks before it
left out, and one with ``##[name]`` anywhere in it (``ActionCommand.cs``).
"""

from __future__ import annotations

import re

# Control characters but for the end of a line and the tabulator; those that turn the direction of
# the text around them; halves of characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COMMAND = re.compile(r"^(?P<blank>\s*)::", re.M)


def plain(text: str) -> str:
    """``text`` with invisible characters written out, and without commands for a runner."""
    shown = _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return _COMMAND.sub(r"\g<blank>\\::", shown).replace("##[", r"#\#[")


def plain_line(text: str) -> str:
    """``plain`` text on one line: the end of a line is written out, too."""
    return plain(text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t"))


def is_plain(name: str) -> bool:
    """Whether a name has only characters that can be seen."""
    return plain_line(name) == name
