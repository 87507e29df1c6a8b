"""``conformance show``: what is installed, in one screen, and useful next commands."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from conformance.run.registry import Registry

WIDTH = 79
"""Column widths for a narrow terminal."""

_NEXT = (
    ("conformance show families|engines|scenarios|faults|plugins", "each by name"),
    ("conformance run --family llama", "one family"),
    ("conformance show mlx_lm/llama/ragged/float32/0", "one case in full"),
)


def overview(registry: Registry) -> str:
    """Counts of families, engines, scenarios and plugins, and useful next commands."""
    lines = list(_counts(registry))
    width = max(len(call) for call, _ in _NEXT)
    lines += ["", "Next:", *(f"  {call:<{width}}  {what}" for call, what in _NEXT)]
    return "\n".join(lines)


def _counts(registry: Registry) -> Iterator[str]:
    families = Counter(library for library, _ in registry.families)
    of_libraries = [f"{families[name]} of {name}" for name in registry.libraries]
    yield _line(len(registry.families), "families", of_libraries)
    yield _line(len(registry.engines), "engines", registry.engines)
    yield _line(len(registry.scenarios), "scenarios", registry.scenarios)
    yield _line(len(registry.plugins), "plugins", (plugin.name for plugin in registry.plugins))


def _line(count: int, what: str, names: Iterable[str]) -> str:
    return textwrap.fill(
        f"{count:>4} {what:<10} {', '.join(names)}",
        width=WIDTH,
        subsequent_indent=" " * 16,
        break_long_words=False,
        break_on_hyphens=False,
    )
