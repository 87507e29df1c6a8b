"""Contracts: what an engine may spend on a schedule, as counts, with limits by engine."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

import msgspec

FILE = "contracts.toml"
_FAMILIES, _QUANTIZED, _LONG = "families", "quantized_families", "long_families"


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limit of an engine that is built otherwise, and why it is."""

    limit: float
    why: str


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is counted, and how much of it there may be.

    Attributes:
        text: the work that is looked at.
        unit: of the count.
        limit: the most that any engine may take, and ``why`` so much.
        engines: limits of engines that are built otherwise.
    """

    text: str
    unit: str
    limit: float
    why: str
    engines: dict[str, Limit] = {}

    def limit_of(self, engine: str) -> float:
        """The most that the engine of that name may take."""
        return self.engines[engine].limit if engine in self.engines else self.limit


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a schedule took of one thing that a contract bounds.

    Attributes:
        contract: its name.
        count: as the contract counts; no time is in it.
        limit: the most that the engine may take.
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


@dataclass(frozen=True)
class Contracts:
    """All contracts by name, and by library the families whose work is counted."""

    by_name: Mapping[str, Contract]
    families: Mapping[str, tuple[str, ...]]
    quantized: Mapping[str, tuple[str, ...]]
    long: Mapping[str, tuple[str, ...]]


@functools.cache
def contracts() -> Contracts:
    """The contracts of the installed package, ``contracts.toml``."""
    file = resources.files("conformance.core") / FILE
    data: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    families, quantized, long = (
        MappingProxyType(msgspec.convert(data.pop(name), dict[str, tuple[str, ...]]))
        for name in (_FAMILIES, _QUANTIZED, _LONG)
    )
    by_name = msgspec.convert(data, dict[str, Contract])
    return Contracts(MappingProxyType(by_name), families, quantized, long)
