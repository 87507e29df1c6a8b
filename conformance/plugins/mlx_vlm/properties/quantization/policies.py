"""What mlx-vlm makes of the options for quantized caches: bits and schemes of keys and values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

kv_quant: Any = compat.part("kv_quant")
turboquant: Any = compat.part("turboquant")

_BITS = ("resolve_kv_bits", "turboquant_enabled", "_validate_bits")


def quantization_properties() -> list[Property]:
    """Those of policies and of bits."""
    return [
        Property("settings: of quantization", "mlx_vlm/kv_quant.py", ("*",), _policies),
        Property(
            "settings: of quantization with uniform parts",
            "mlx_vlm/kv_quant.py",
            ("KVQuantPolicy.*", "from_*"),
            _uniform_parts,
        ),
        Property("settings: of bits", "mlx_vlm/turboquant.py", _BITS, _bits),
    ]


def _whole(bits: float) -> bool:
    return math.isclose(bits, round(bits), abs_tol=1e-6)


def _policy(bits: float, scheme: str | None, parts: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Bits, and scheme and bits of keys and of values; ``None`` where it must be refused."""
    key_bits, value_bits, key_scheme, value_scheme = parts
    turbo = scheme == "turboquant" or not _whole(bits)
    base = "turboquant" if turbo else "uniform"
    found: list[Any] = [float(bits)]
    if turbo and (bits < 1 or not _whole(2 * bits)):
        return None
    halves = (math.floor, math.ceil)
    for half, own, own_scheme in zip(
        halves, (key_bits, value_bits), (key_scheme, value_scheme), strict=True
    ):
        if own_scheme not in (None, "uniform", "turboquant"):
            return None
        if turbo and own is not None and (own < 1 or not _whole(2 * own)):
            return None
        used = own_scheme or base
        default = half(bits) if turbo and used == base else bits
        count = float(own if own is not None else default)
        if used == "uniform" and not count.is_integer():
            return None
        found += [used, count]
    return tuple(found)


def _policies() -> Iterator[str]:
    """Any mixture of bits and schemes, by arguments and by a config, there and back."""
    schemes = (None, "uniform", "turboquant")
    parts = itertools.product((None, 3, 4.5), (None, 2), (*schemes, "other"), schemes)
    marks: dict[str, Any] = {}
    for rest, bits, scheme in itertools.product(parts, (8, 3.5, 4, 0.5, 3.25), schemes):
        wanted = _policy(bits, scheme, rest)
        try:
            made = kv_quant.from_legacy(bits, scheme, 32, *rest)
        except ValueError:
            made = None
        parted = made and (made.key, made.value)
        got = made and (made.bits, *(n for one in parted for n in (one.scheme, one.bits)))
        if got != wanted:
            yield f"{bits} bits, {scheme}, {rest} give {got}, not {wanted}"
        elif made is not None:
            yield from _said(made, bits)
            mark = made.fingerprint(5)
            if marks.setdefault(mark, made) != made or mark == made.fingerprint(6):
                yield f"{made} and {marks[mark]} have one fingerprint"
    yield from _defaults()


def _said(made: Any, bits: float) -> Iterator[str]:
    """What a policy says of itself."""
    alike = made.key.scheme == made.value.scheme
    default = (math.floor(bits), math.ceil(bits)) != (made.key.bits, made.value.bits)
    said = made.is_homogeneous, made.has_split_override, made.group_size
    if said != (alike, default, 32) or {made.key.group_size, made.value.group_size} != {32}:
        yield f"{made} is said to be {said}"
    if made.is_turboquant != ({made.key.scheme, made.value.scheme} == {"turboquant"}):
        yield f"{made} is turboquant: {made.is_turboquant}"
    # What has 3.5 bits and uniform parts is in ``_uniform_parts``.
    if alike and (made.is_turboquant or _whole(bits)):
        yield from _back(made)
    elif not alike:
        yield from _mixed(made)


def _uniform_parts() -> Iterator[str]:
    """A policy of half bits whose parts are both uniform comes back of its config, too."""
    made = kv_quant.from_legacy(3.5, None, 32, 3, 4, "uniform", "uniform")
    try:
        again = kv_quant.from_config(made.to_config())
    except ValueError as error:
        again = f"an error: {error}"
    if again != made:
        yield f"{made} comes back of its config as {again}"


def _defaults() -> Iterator[str]:
    first = kv_quant.from_legacy(8)
    if first is None or first.group_size != 64 or kv_quant.from_legacy(None) is not None:
        yield "the size of a group is not 64 by default, or there are no bits"
    if kv_quant.from_config({}) is not None or kv_quant.from_config(None) is not None:
        yield "no config is one"
    if kv_quant.from_config({"bits": 8}) != first:
        yield "a config without the size of a group is not as by default"
    texts = ("key_bits", "value_bits")
    by_config = kv_quant.from_config({"bits": 8, "group_size": "32", **dict.fromkeys(texts, 4)})
    if by_config != kv_quant.from_legacy(8, None, 32, 4, 4):
        yield f"a config gives {by_config}"


def _mixed(made: Any) -> Iterator[str]:
    """One scheme of two is none; the config says both."""
    try:
        yield f"the scheme of {made} is {made.scheme!r}"
    except ValueError:
        config = made.to_config()
        said = config.get("key_scheme"), config.get("value_scheme")
        if said != (made.key.scheme, made.value.scheme):
            yield f"the config of {made} has the schemes {said}"


def _back(made: Any) -> Iterator[str]:
    """A config says only what is not as by default, and gives the same again."""
    config = made.to_config()
    if kv_quant.from_config(config) != made:
        yield f"{made} comes back of its config as {kv_quant.from_config(config)}"
    more = {"key_bits", "value_bits"} if made.has_split_override else set()
    if set(config) != {"bits", "group_size", "scheme"} | more:
        yield f"the config of {made} has {sorted(config)}"
    if made.scheme != made.key.scheme:
        yield f"the scheme of {made} is {made.scheme!r}"


def _bits() -> Iterator[str]:
    for bits, wanted in (
        (3.5, (3.5, 3, 4)),
        (3.5 + 5e-7, (3.5, 3, 4)),
        (4, (4, 4, 4)),
        (1, (1, 1, 1)),
        (1.5, (1.5, 1, 2)),
    ):
        if turboquant.resolve_kv_bits(bits) != wanted:
            yield f"{bits} bits are {turboquant.resolve_kv_bits(bits)}"
    own = turboquant.resolve_kv_bits(3.5, 2), turboquant.resolve_kv_bits(3.5, value_bits=2.5)
    if own != ((3.5, 2, 4), (3.5, 3, 2.5)):
        yield f"bits of keys or of values are {own}"
    for wrong in (0.5, 0, 3.25, 3.4):
        try:
            turboquant.resolve_kv_bits(wrong)
        except ValueError:
            continue
        yield f"{wrong} bits are taken"
    asked = [
        (None, "turboquant"),
        (3.5, None),
        (4, None),
        (4, "turboquant"),
        (4, "uniform"),
        (3.5, "uniform"),
    ]
    on = [turboquant.turboquant_enabled(*given) for given in asked]
    if on != [False, True, False, True, False, True]:
        yield f"TurboQuant is on: {on}"
