"""Texts from which a checkpoint's prompts are cut."""

from __future__ import annotations

from pathlib import Path

from conformance.core.errors import CheckpointError
from conformance.core.user_files import read_text

# Texts of various kinds; each begins with a different word, so that short prompts differ.
BUILT_IN = (
    "The lighthouse keeper counted the ships again and wrote each name into the long grey book.",
    "def area(width, height):\n    return width * height  # both in metres",
    "Why do leaves turn red in autumn, and why do some trees keep theirs until spring?",
    '{"city": "Lisbon", "temperature": 19.5, "wind": {"speed": 12, "from": "north-west"}}',
    "Translate into German: my sister has bought two tickets for the train at half past seven.",
    "1. Whisk three eggs. 2. Melt the butter. 3. Pour, wait a minute, fold, and serve at once.",
    "Once upon a time a clockmaker built a bird that sang only when nobody was listening.",
    "SELECT name, COUNT(*) FROM orders WHERE year = 2024 GROUP BY name ORDER BY 2 DESC;",
    "Dear committee, thank you for your letter of 3 May; I accept the invitation with pleasure.",
    "If a train leaves at noon and travels 240 km in three hours, how fast does it go?",
    "User: my screen stays black after the update. Assistant: does the fan still turn?",
    "Energy is neither made nor lost; it only changes its form, from motion to heat and back.",
)


def read_texts(path: Path | None) -> tuple[str, ...]:
    """The texts of a file, one per line; the built-in ones without a file.

    Raises:
        CheckpointError: the file can't be read, is not UTF-8, or holds no text.
    """
    if path is None:
        return BUILT_IN
    lines = read_text(path, CheckpointError).splitlines()
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise CheckpointError(f"{path}: holds no prompt; write one text a line")
    return texts
