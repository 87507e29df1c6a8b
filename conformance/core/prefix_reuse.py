"""An engine's declared rules for reusing prefixes: what they exclude is not required of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class PrefixReuse:
    """The rules by which an engine reuses prefixes of prompts, in addition to its options.

    A run in which the engine breaks a declared rule has the verdict ``protocol``.

    Attributes:
        smallest: shorter prefixes are never reused; in tokens.
        block_size: prefixes are reused in whole blocks of this many tokens, whatever the options
            say; 0 for the options' ``block_size``.
        on_completion: a prompt can be reused only after its request has ended.
    """

    smallest: int = 0
    block_size: int = 0
    on_completion: bool = False

    def __str__(self) -> str:
        declared = (f for f in fields(self) if getattr(self, f.name) != f.default)
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in declared)

    def each_alone(self) -> tuple[PrefixReuse, ...]:
        """One object for each declared rule, with only that rule."""
        found = (replace(PrefixReuse(), **{f.name: getattr(self, f.name)}) for f in fields(self))
        return tuple(rule for rule in found if rule != PrefixReuse())

    def whole(self, count: int, block_size: int) -> int:
        """How many of ``count`` tokens may be reused, if the options have that block size."""
        kept = count - count % (self.block_size or block_size)
        return kept if kept >= self.smallest else 0
