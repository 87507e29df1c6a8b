"""Known differences of the implementations, and the inputs of both sides that follow."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.errors import FamilyError
from conformance.core.family import Family
from conformance.core.user_files import read_toml, typed
from conformance.core.weights import draw

FILE = Path(__file__).with_name("known_differences.toml")


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a comparison changes in the family's config or in the torch model.

    Attributes:
        both: fields of the config that both sides get.
        transformers: fields of the config that only transformers gets.
        drop: fields that transformers does not get; ``text_config.x`` is a field of the text tower.
        leave: parameters, by glob of the new path, that the checkpoint leaves out.
        null: fields that both sides get as null.
        tower: transformers gets only this table of the config.
        plain: the checkpoint has the torch model's own names and shapes, not published ones.
        auto: the ``Auto`` class, if a model type has two.
        modules: attributes of torch modules by glob, ``*.norm.variance_epsilon``.
        weights: parameters of the torch model by glob, all set to one number.
        rename: regular expressions for parameter paths, and their names in the checkpoint.
        transpose: parameters, by glob of the new path, whose last two axes the checkpoint swaps.
    """

    both: dict[str, Any] = {}
    transformers: dict[str, Any] = {}
    drop: tuple[str, ...] = ()
    modules: dict[str, float] = {}
    weights: dict[str, float] = {}
    rename: dict[str, str] = {}
    transpose: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    plain: bool = False
    auto: str = ""
    tower: str = ""
    null: tuple[str, ...] = ()


class Adjustment(Change, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sides name or default a field differently, and neither is wrong; ``why`` says how."""

    why: str


class Cause(Change, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause of disagreement, proved if both sides agree with the changes of all causes.

    ``wrong`` is the side that is wrong; ``at`` is the file and line in its installed release.
    """

    wrong: str
    at: str
    what: str


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The known differences of one family; ``absent`` says what transformers lacks for it."""

    adjust: tuple[Adjustment, ...] = ()
    cause: tuple[Cause, ...] = ()
    absent: str = ""


def load_known(path: Path = FILE) -> dict[str, Known]:
    """The known differences, by family.

    Raises:
        FamilyError: the file is missing or malformed; the message names the field.
    """
    return typed(read_toml(path, FamilyError), dict[str, Known], str(path), FamilyError)


def merged(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The config with ``fields`` added; tables are merged into existing tables."""
    result = copy.deepcopy(dict(config))
    for name, value in fields.items():
        inner = result.get(name)
        if isinstance(value, dict) and isinstance(inner, dict):
            result[name] = merged(inner, value)
        else:
            result[name] = copy.deepcopy(value)
    return result


def without(config: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """The config without ``fields``, which are dotted paths."""
    result = copy.deepcopy(dict(config))
    for field in fields:
        *path, last = field.split(".")
        table = result
        for name in path:
            table = table.get(name, {})
        table.pop(last, None)
    return result


STEPS = 8
"""The number of greedy tokens."""
PROMPT = 28
"""The least number of tokens of a prompt, and of windows that it spans."""
WINDOWS = 3


def changed(family: Family, changes: tuple[Change, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config that the library reads, and the one that transformers gets."""
    config = dict(family.config)
    for change in changes:
        config = merged(config, {**change.both, **dict.fromkeys(change.null)})
    other = config
    for change in changes:
        other = other[change.tower] if change.tower else other
        other = without(merged(other, change.transformers), change.drop)
    return config, other


def prompt_of(family: Family) -> tuple[int, ...]:
    """Token ids of a prompt that is longer than several of the family's windows."""
    low, high = family.tokens
    count = max(PROMPT, WINDOWS * (family.facts.window or 0) + 4)
    drawn = draw("prompt", (count,), seed=0)
    return tuple(low + int((number + 4.0) * 1e6) % (high - low) for number in drawn)
