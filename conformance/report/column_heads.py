"""Names of columns in narrow heads: each name broken into at most five lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MOST_LINES = 5
LEAST_LETTERS = 3
"""With this many letters per line, every scenario name of the ladder fits."""

_MOST_LETTERS = 12
_CUT = "."


def letters_for(names: Sequence[str], room: int) -> int:
    """The most letters per line of each head that do not increase the number of column blocks.

    Args:
        names: names of all columns.
        room: width of a block of columns, with a blank after each column.
    """

    def blocks(letters: int) -> int:
        return -(-len(names) // max(room // (letters + 1), 1))

    longest = max((len(word) for name in names for word in name.split("_")), default=0)
    most = max(min(longest, _MOST_LETTERS), LEAST_LETTERS)
    wide = range(LEAST_LETTERS, most + 1)
    return max(letters for letters in wide if blocks(letters) == blocks(LEAST_LETTERS))


def broken(name: str, letters: int) -> list[str]:
    """A name in at most ``MOST_LINES`` lines; a shortened name ends with a point."""
    words = [word for word in name.split("_") if word]
    lines = [line for word in words for line in _evenly(word, letters)]
    if len(lines) > MOST_LINES:
        lines = list(_evenly("".join(words), letters, full=True))
    if len(lines) > MOST_LINES:
        lines = lines[:MOST_LINES]
        lines[-1] = lines[-1][: letters - len(_CUT)] + _CUT
    return lines


def is_cut(name: str, letters: int) -> bool:
    """Whether the head shortens the name."""
    return "".join(broken(name, letters)) != name.replace("_", "")


def head_lines(names: Sequence[str], letters: int) -> Iterator[str]:
    """The lines above the columns, each ``letters`` wide and one blank apart, from the top."""
    heads = [broken(name, letters) for name in names]
    height = max(map(len, heads), default=0)
    for level in range(height):
        parts = ([""] * (height - len(head)) + head for head in heads)
        yield " ".join(f"{lines[level]:<{letters}}" for lines in parts).rstrip()


def _evenly(word: str, letters: int, *, full: bool = False) -> Iterator[str]:
    """Split a word into as few lines as needed, equally long or, with ``full``, full lines."""
    count = -(-len(word) // letters)
    size = letters if full else -(-len(word) // count)
    for start in range(0, len(word), size):
        yield word[start : start + size]
