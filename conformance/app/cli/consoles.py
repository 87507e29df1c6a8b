"""Consoles for tables and colours, with the rules of ``printing``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from conformance.core.plain_text import plain


def new_console(**options: Any) -> Console:
    """A console for tables and colours. Its text has no markup: names may look like it."""
    return _PlainConsole(**{"highlight": False, "markup": False, "emoji": False, **options})


class _PlainConsole(Console):
    """Writes out what is invisible in each piece of text; its own control codes stay."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The pieces, in plain text."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(plain(text), style)
