"""Which families stand for the others of their library: ``representatives.toml``."""

from __future__ import annotations

import functools
from importlib import resources

import msgspec

from conformance.core.family import Family

FILE = "representatives.toml"
_QUANTIZED = "served_quantized"
Table = dict[str, tuple[str, ...]]
"""Names of families, by library; all families of a library without an entry."""


class Representatives(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of the file.

    Attributes:
        counted: families whose work is counted.
        counted_quantized: families whose quantized keys and values are counted.
        counted_long: families that give long answers.
        costly: families that run costly tests of the engine below the full tier.
        beside: families whose models decode beside those of others.
        options: families that run ``traffic_options`` in the quick tier.
        marathon: families that run the ``marathon`` there.
        half: families that run some scenarios in half precision, too.
        half_scenarios: these scenarios.
        served: families that servers run by default.
        served_quantized: families whose keys and values a server quantizes.
        served_parts: by scenario, further families of which servers run no others.
        served_by_first: ``scenarios`` that only the first of these runs.
    """

    counted: Table
    counted_quantized: Table
    counted_long: Table
    costly: Table
    options: Table
    beside: Table
    marathon: Table
    half: Table
    half_scenarios: Table
    served: Table
    served_quantized: Table
    served_parts: dict[str, Table]
    served_by_first: Table

    def serves(self, family: Family, scenario: str) -> bool:
        """Whether the family runs the servers' scenario by default."""
        if scenario == _QUANTIZED:
            return family.name in chosen_of(self.served_quantized, family)
        parts = self.served_parts.get(scenario, {})
        if family.name in parts.get(family.facts.library, ()):
            return True
        of_first = scenario in self.served_by_first["scenarios"]
        chosen = chosen_of(self.served, family)
        return family.name in (chosen[:1] if of_first else chosen)


def chosen_of(table: Table, family: Family) -> tuple[str, ...]:
    """The families of a table that stand for this one; itself if its library has none there."""
    return table.get(family.facts.library, (family.name,))


@functools.cache
def representatives() -> Representatives:
    """The tables in the installed package."""
    file = resources.files("conformance.core") / FILE
    return msgspec.toml.decode(file.read_bytes(), type=Representatives)
