"""Consoles for tables and colours, with the rules of ``printing``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from conformance.core.plain_text import plain


def new_console(**options: Any) -> Console:
    """A console for tables and colours, without markup: a name may look like markup."""
    return _PlainConsole(**{"highlight": False, "markup": False, "emoji": False, **options})


def new_table(title: str, *columns: str, right: Collection[str] = ()) -> Table:
    """A table without lines; the columns in ``right`` are justified to the right."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left")
    return table


class _PlainConsole(Console):
    """Escapes invisible characters in each piece of text, but not its own control codes."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The pieces, in plain text."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(plain(text), style)
