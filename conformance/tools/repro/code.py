"""Values as Python code: arguments of generators, outputs of processors, wrapped lines."""

from __future__ import annotations

import hashlib
import itertools
import re
import textwrap
from typing import Any

import numpy as np

from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.errors import NoScriptError, ReproError
from conformance.tools.repro.found import Found
from conformance.tools.repro.refusing import Reason

WIDTH = 100
"""Width of a script, in columns."""

# Larger arrays are drawn at random if they are pixels; otherwise they cannot be written.
_MOST_NUMBERS = 64
_MOST_WHOLE = 256
# This many equal tokens in a row are written as a product.
_RUN = 6


def options_of(library: str, options: EngineOptions) -> dict[str, Any]:
    """The generator's arguments that differ from the library's defaults."""
    sizes = ("prefill_step_size", "prefill_batch_size", "completion_batch_size", "max_kv_size")
    plain = EngineOptions()
    given = {
        name: getattr(options, name)
        for name in sizes
        if getattr(options, name) != getattr(plain, name)
    }
    if library == "mlx_vlm":
        given.pop("max_kv_size", None)
    if options.kv is not None:
        kv, bits = options.kv, options.kv.bits
        given |= {"kv_bits": int(bits) if float(bits).is_integer() else bits}
        given |= {"kv_group_size": kv.group_size, "kv_quant_scheme": kv.scheme}
        given |= {"quantized_kv_start": kv.start}
    return given


def bounded_by(found: Found) -> str:
    """Further arguments of the single stream, as the tail of a call."""
    options = found.schedule.options
    if found.library == "mlx_lm":
        return f', "max_kv_size": {options.max_kv_size}' if options.max_kv_size else ""
    if found.kind.policy:
        given = {k: v for k, v in options_of("mlx_vlm", options).items() if "kv" in k}
        return f", **{given!r}"
    return ""


def processors_of(found: Found) -> dict[str, dict[str, Any]]:
    """The arguments of ``make_logits_processors``, for each request with logits processors."""
    given: dict[str, dict[str, Any]] = {}
    for request in found.requests:
        for one in request.processors:
            arguments = dict(one.args)
            if "logit_bias" in arguments:  # JSON has no integer keys
                arguments["logit_bias"] = {int(k): v for k, v in arguments["logit_bias"].items()}
            given.setdefault(request.request_id, {}).update(arguments)
    return given


def caching_of(library: str, caching: PrefixCaching) -> str:
    """The arguments of the library's prefix cache: a number in mlx-lm, keywords in mlx-vlm."""
    if library == "mlx_lm":
        return str(caching.snapshots)
    return repr(
        {
            "enabled": True,
            "disk_enabled": False,
            "num_blocks": caching.blocks,
            "block_size": caching.block_size,
            "checkpoint_entries": caching.snapshots,
            "checkpoint_interval_tokens": caching.interval,
            "memory_max_gb": 1,
            "memory_reserve_gb": 0,
        }
    )


def requests_of(found: Found) -> tuple[dict[str, tuple[list[int], int]], str]:
    """Each request's prompt and number of tokens, and their code, with runs of tokens shortened."""
    prompts = {r.request_id: list(r.prompt) for r in found.requests}
    prompts |= {name: prompts[other] for name, other in found.follows.items()}
    value = {r.request_id: (prompts[r.request_id], r.max_tokens) for r in found.requests}
    rows = (f"{name!r}: ({_runs(prompt)}, {count})" for name, (prompt, count) in value.items())
    return value, f"{{{', '.join(rows)}}}"


def _runs(prompt: list[int]) -> str:
    parts = []
    for token, run in itertools.groupby(prompt):
        count = len(list(run))
        parts += [f"*[{token}] * {count}"] if count >= _RUN else [str(token)] * count
    return f"[{', '.join(parts)}]"


def media_of(found: Found) -> str:
    """The code of a dictionary with the processor's output for each request, without ids."""
    given = {r.request_id: found.processed.get(r.request_id, {}) for r in found.requests}
    if not any(given.values()):
        return ""
    codes = {
        name: "{" + ", ".join(f"{key!r}: {_code(v, found)}" for key, v in values.items()) + "}"
        for name, values in given.items()
        if values
    }
    alike = {re.sub(r"key\(\d+\)", f"key({_distinct(found)})", code) for code in codes.values()}
    if len(alike) == 1 and len(codes) == len(given):
        text = alike.pop()
    else:
        rows = ", ".join(f"{name!r}: {code}" for name, code in codes.items())
        text = f"{{{rows}}}.get(name, {{}})"
    return "\n        ".join(folded(text, WIDTH - 12))


def _distinct(found: Found) -> str:
    """An expression of ``name`` or ``prompt`` with a different value for each request."""
    for code, numbers in (
        ("len(prompt)", [len(request.prompt) for request in found.requests]),
        ("len(name)", [len(request.request_id) for request in found.requests]),
    ):
        if len(set(numbers)) == len(numbers):
            return code
    return "list(REQUESTS).index(name)"


def _code(value: Any, found: Found) -> str:
    """The code of a value that a processor returned; large floating arrays are drawn at random."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_code(item, found) for item in value) + "]"
    if not isinstance(value, np.ndarray):
        return repr(value)
    if value.size > _MOST_NUMBERS and value.dtype.kind == "f":
        seed = int.from_bytes(hashlib.sha256(value.tobytes()).digest()[:2], "little")
        return f"mx.random.normal({value.shape}, key=mx.random.key({seed}))"
    if value.size > _MOST_NUMBERS and (value == value.flat[0]).all():
        return f"mx.full({value.shape}, {value.flat[0].item()}, mx.{value.dtype})"
    if value.size > (_MOST_NUMBERS if value.dtype.kind == "f" else _MOST_WHOLE):
        message = f"the processor gives {value.size} whole numbers"
        raise NoScriptError(f"{found.case}: {message}", Reason.MEDIA)
    kind = "" if value.dtype in (np.int32, np.float32, np.bool_) else f", mx.{value.dtype}"
    return f"mx.array({value.tolist()}{kind})"


def mapping(value: Any) -> str:
    """The shortest code of nested mappings, lists and plain values."""
    if isinstance(value, list):
        return f"[{', '.join(map(mapping, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    if not all(isinstance(name, str) and name.isidentifier() for name in value):
        return "{" + ", ".join(f"{name!r}: {mapping(one)}" for name, one in value.items()) + "}"
    return f"dict({', '.join(f'{name}={mapping(one)}' for name, one in value.items())})"


def wrapped(start: str, value: Any, code: str, width: int) -> str:
    """``start`` and the value's code, over as many lines as needed.

    Raises:
        ReproError: the code cannot be wrapped without changing the value.
    """
    text = "\n".join(folded(start + code, width, indent="    "))
    if eval(text.removeprefix(start), {"__builtins__": {"dict": dict}}) != value:
        raise ReproError(f"cannot be written over several lines: {value!r:.60}")
    return text


_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_HELD = "\0"  # a space at which the line must not be broken


def folded(code: str, width: int, *, indent: str = "") -> list[str]:
    """Lines of code of about ``width`` columns, never broken within a string.

    Args:
        indent: the indentation of all lines but the first.
    """
    held = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _HELD), code)
    lines = textwrap.wrap(
        held, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_HELD, " ") for line in lines]
