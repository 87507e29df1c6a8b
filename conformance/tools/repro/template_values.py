"""The values that the templates are rendered with."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from conformance.core.engine_options import EngineOptions
from conformance.core.library_source import source_of
from conformance.core.weights import scales
from conformance.tools.repro.calls import calls_of
from conformance.tools.repro.code import (
    WIDTH,
    bounded_by,
    caching_of,
    mapping,
    media_of,
    options_of,
    processors_of,
    requests_of,
    wrapped,
)
from conformance.tools.repro.found import Found, Kind
from conformance.tools.repro.refusing import refuse

V = TypeVar("V", bound=Hashable)


Endings = str | tuple[str, ...]


def by_suffix(values: Mapping[str, V]) -> list[tuple[Endings, V]]:
    """Rows of one or more path endings and the value of the paths with such an ending.

    A path, with a slash before it, has the value of the first row with one of its endings. The last
    row has the ending ``""``, which matches all other paths.
    """
    groups: dict[V, list[str]] = {}
    for path, value in values.items():
        groups.setdefault(value, []).append(f"/{path}")
    endings = {
        value: _endings(mine, [p for other, ps in groups.items() if other != value for p in ps])
        for value, mine in groups.items()
    }
    # The value with the longest endings becomes the last row.
    rest = max(endings, key=lambda value: sum(map(len, endings[value])))
    rows: list[tuple[Endings, V]] = [
        (tuple(ends) if len(ends) > 1 else ends[0], value)
        for value, ends in endings.items()
        if value != rest
    ]
    return [*rows, ("", rest)]


def value_of(path: str, rows: list[tuple[Endings, V]]) -> V:
    """The value of a path."""
    return next(value for endings, value in rows if f"/{path}".endswith(endings))


def _endings(mine: list[str], others: list[str]) -> list[str]:
    """Few, short endings, each starting at a dot, that cover all of ``mine`` and no other path.

    A path without such an ending is listed in full.
    """
    found: list[str] = []
    for path in mine:
        if path.endswith(tuple(found)):
            continue
        parts = path.split(".")
        short = ("." + ".".join(parts[-count:]) for count in range(1, len(parts)))
        free = (end for end in short if not any(other.endswith(end) for other in others))
        found.append(next(free, path))
    return found


# The imports of a script, by library.
_IMPORTS = {
    "mlx_lm": (
        "from mlx_lm.generate import BatchGenerator, generate_step",
        "from mlx_lm.utils import _get_classes",
    ),
    "mlx_vlm": (
        "from mlx_vlm.generate.ar import BatchGenerator, generate_step",
        "from mlx_vlm.utils import get_model_and_args, update_module_configs",
    ),
}
_SIDES = {"stateless": ("with a cache", "without"), "pieces": ("in pieces", "whole")}
_TOWERS = ["text", "vision", "perceiver", "projector", "audio"]
_PROCESSED = "make_logits_processors(**PROCESSORS.get(name, {}))"


def template_values(found: Found, width: int) -> dict[str, Any]:
    """All values that the templates use.

    Args:
        width: of a line, in columns.

    Raises:
        NoScriptError: the templates do not support something in ``found``.
    """
    library, kind, options = found.library, found.kind, found.schedule.options
    refuse(found)
    # Only the generator makes quantized caches of one row.
    row = options.kv is not None and not kind.policy
    caching, media = options.prefix_caching, media_of(found)
    left, right = _SIDES.get(kind.oracle, ("alone", "in the batch"))
    size = options.prefill_step_size
    longest = max(len(request.prompt) for request in found.schedule.requests)
    calls = calls_of(found)
    wrongly = [(p.when.count, calls[p.kind]) for p in found.schedule.probes if not kind.called]
    processors = processors_of(found)
    whole = "2048" if library == "mlx_lm" else "None"
    return {
        "library": library,
        "driven": found.driven,
        "driven_options": _driven_options(found),
        "tokens_only": found.driven is not None and kind.batch and not found.driven.logprobs,
        "text": docstring(found, found.text),
        "imports": _imports(found),
        "config": wrapped("CONFIG = ", found.config, mapping(found.config), width),
        "weights": wrapped("WEIGHTS = ", _weights(found), repr(_weights(found)), width),
        "requests": wrapped("REQUESTS = ", *requests_of(found), width),
        "arrive": _line("ARRIVE", _arrivals(found), width),
        "leave": _line("LEAVE", _leaving(found), width),
        "options": "".join(f", {k}={v!r}" for k, v in options_of(library, options).items()),
        "late": bool(found.schedule.removals or wrongly) or set(_arrivals(found)) != {0},
        **_together(found),
        "called": kind.called,
        "weighed": kind.weighed,
        "calls": calls,
        "wrongly": wrongly,
        "embeds": any("embeds(" in code for code in calls.values()),
        "processors": _line("PROCESSORS", processors, width),
        "processed": f", logits_processors=[{_PROCESSED}]" if processors else "",
        "integers": found.integers,
        "function": not found.joined
        and (bool(media) or caching is not None or kind.oracle == "stateless"),
        "towers": _TOWERS,
        "expected": _expected(kind),
        "media": media,
        "caching": caching_of(library, caching) if caching else "",
        "batch": kind.batch or row,
        "crash": kind.crash,
        "oracle": kind.oracle,
        "alone": "row" if row else "stream",
        "size": whole if found.whole or (library == "mlx_lm" and size >= longest) else str(size),
        "whole": whole,
        "bounded": bounded_by(found)
        + (f', "logits_processors": {_PROCESSED}' if processors else ""),
        "left": left,
        "right": "alone" if kind.crash and not (kind.batch or row) else right,
        "bound": f"{found.bound:.1g}",
        "noise": f"{found.noise:.1g}",
        "seed": found.seed,
        "dtype": found.case.dtype,
        "experts": found.experts,
        "steps": found.steps,
        "longer": any(request.max_tokens > 1 for request in found.requests),
        "follows": repr(dict(found.follows)) if found.follows else "",
        "vocab": found.vocab,
    }


def _line(name: str, value: Any, width: int) -> str:
    """The assignment of a value; empty for an empty value."""
    return wrapped(f"{name} = ", value, repr(value), width) if value else ""


def _expected(kind: Kind) -> str:
    if kind.weighed:
        held = "about what is counted"
        return f"expected {'the same after each step' if kind.weighed == 'graph' else held}"
    if kind.called:
        return "expected all refused"
    return "expected no exception" if kind.crash else "expected all below the bound"


def _imports(found: Found) -> list[str]:
    ours = ["import mlx.core as mx, mlx.utils"]
    if found.driven is not None:
        ours.append("from mlx_lm.generate import generate_step")
        return [*ours, *_IMPORTS["mlx_lm"][1:], *found.driven.imports]
    if found.library == "mlx_vlm":
        ours.insert(0, "from unittest.mock import MagicMock")
    caching = found.schedule.options.prefix_caching
    if caching is not None and found.library == "mlx_vlm":
        ours.append("from mlx_vlm import apc")
    generating, *building = _IMPORTS[found.library]
    if found.joined:
        generating = f"{generating}, _split_prompt_kwargs_per_row"
    if caching is not None and found.library == "mlx_lm":
        building.append("from mlx_lm.models.cache import LRUPromptCache")
    if found.kind.called or found.kind.weighed:
        generating = generating.removesuffix(", generate_step")
    if any("sample_utils." in code for code in calls_of(found).values()):
        building.append(f"from {found.library} import sample_utils")
    if any(request.processors for request in found.requests):
        building.append("from mlx_vlm.sample_utils import make_logits_processors")
    return [*ours, generating, *building]


def _driven_options(found: Found) -> str:
    """Options that differ from their defaults, for an engine whose construction names them."""
    if found.driven is None or "options" not in found.driven.construct:
        return ""
    default = EngineOptions()
    options = {n: getattr(found.schedule.options, n) for n in default.__struct_fields__}
    return repr({n: value for n, value in options.items() if value != getattr(default, n)})


def _together(found: Found) -> dict[str, Any]:
    """The values for prompts that are joined into one batch before they are embedded."""
    groups = found.joined
    return {
        "groups": repr([list(group.names) for group in groups]) if groups else "",
        "pad": groups[0].pad if groups else 0,
        "behind": bool(groups) and groups[0].right,
        "several": len(groups) > 1,
        "ragged": len({len(r.prompt) for r in found.requests}) > 1,
        "padded": list(groups[0].padded) if groups else [],
    }


def docstring(found: Found, what: str) -> str:
    """The script's docstring: the defect, and the case and schedule that show it."""
    text = f"{what} From {found.case}, schedule {found.schedule.name} ({found.verdict})."
    lines = textwrap.wrap(text.replace("\\", "/"), WIDTH - 6)
    if source := source_of(found.library.replace("_", "-")):
        lines.append(f"Made with {source.text}.")
    return "\n".join(lines)


def _weights(found: Found) -> list[tuple[Any, ...]]:
    """Rows of path endings, mean, and deviation (for matrices times the root of the last axis).

    With this scale most matrices have the same deviation, so few rows are needed.
    """
    drawn = {}
    for path, (mean, std) in scales(found.shapes, found.recipe).items():
        shape = found.shapes[path]
        root = shape[-1] ** 0.5 if len(shape) > 1 else 1.0
        if path.startswith(found.reached):
            drawn[path] = _short(mean), _short(std * root)
    return [(ends, *value) for ends, value in by_suffix(drawn)]


def _short(number: float) -> float:
    return float(f"{number:.3g}")


def _arrivals(found: Found) -> dict[int, list[str]]:
    """The requests that arrive before each step, in order."""
    steps: dict[int, list[str]] = {}
    for arrival in sorted(found.schedule.arrivals, key=lambda a: a.when.count):
        steps.setdefault(arrival.when.count, []).extend(r.request_id for r in arrival.requests)
    return steps


def _leaving(found: Found) -> dict[int, list[str]]:
    steps: dict[int, list[str]] = {}
    for removal in found.schedule.removals:
        steps.setdefault(removal.when.count, []).extend(removal.request_ids)
    return steps
