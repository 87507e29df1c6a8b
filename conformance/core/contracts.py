"""Contracts: limits on an engine's work for a schedule, as counts, with limits by engine."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

import msgspec

FILE = "contracts.toml"


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limit for an engine with another design, and the reason."""

    limit: float
    why: str


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is counted, and its limit.

    Attributes:
        text: the work that is counted.
        unit: unit of the count.
        limit: the most that any engine may take.
        why: the reason for the limit.
        engines: limits for engines with another design.
    """

    text: str
    unit: str
    limit: float
    why: str
    engines: dict[str, Limit] = {}

    def limit_of(self, engine: str) -> float:
        """The limit for the engine with that name."""
        return self.engines[engine].limit if engine in self.engines else self.limit


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """The measured count for one contract in one schedule.

    Attributes:
        contract: the contract's name.
        count: the count as the contract defines it; never a time.
        limit: the limit for the engine.
        where: the places in the library at which it is counted, if it is counted by place.
    """

    contract: str
    count: float
    limit: float
    where: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether the contract is kept."""
        return self.count <= self.limit


@functools.cache
def contracts() -> Mapping[str, Contract]:
    """The contracts of the installed package by name, from ``contracts.toml``."""
    file = resources.files("conformance.core") / FILE
    return MappingProxyType(msgspec.toml.decode(file.read_bytes(), type=dict[str, Contract]))
