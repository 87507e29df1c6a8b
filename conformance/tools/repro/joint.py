"""Compares the processor's output for several prompts in one call with its output for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.core.errors import NoScriptError
from conformance.core.schedule import Request
from conformance.tools.repro.found import Joined
from conformance.tools.repro.refusing import Reason

Together = Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]


def joined_of(
    join: Callable[[], Together],
    requests: Mapping[str, Request],
    separate: Mapping[str, Mapping[str, Any]],
    case: str,
) -> tuple[Joined, ...]:
    """How to build the processor's joint output for several prompts from its output for each.

    Args:
        join: calls the processor.
        separate: for each request the processor's outputs except the ids.

    Raises:
        NoScriptError: the processor fails, or its joint output is not the concatenation.
    """
    try:
        groups = join()
    except Exception as error:
        message = f"the processor fails itself, {type(error).__name__}: {error}"
        raise NoScriptError(f"{case}: {message}", Reason.PROCESSOR) from error
    found = []
    for names, made in groups:
        ids, mask = made["input_ids"], made["attention_mask"]
        rows = [tuple(row[seen > 0].tolist()) for row, seen in zip(ids, mask, strict=True)]
        if rows != [requests[name].prompt for name in names]:
            message = "the processor makes other ids of several prompts than of each"
            raise NoScriptError(f"{case}: {message}", Reason.PROCESSOR)
        given = {k: v for k, v in made.items() if k not in ("input_ids", "attention_mask")}
        parts = [separate[name] for name in names]
        padded = [k for k, v in given.items() if isinstance(v, np.ndarray) and v.shape == ids.shape]
        for name, value in given.items():
            width = ids.shape[1] if name in padded else 0
            if not _same(value, [part[name] for part in parts if name in part], width):
                message = f"the processor makes other {name} of several prompts than of each"
                raise NoScriptError(f"{case}: {message}", Reason.PROCESSOR)
        pad = int(ids[mask == 0][0]) if (mask == 0).any() else 0
        right = bool((mask[:, 0] > 0).all() and (mask == 0).any())
        found.append(Joined(names, pad, right, tuple(given), tuple(padded)))
    return tuple(found)


def _same(value: Any, parts: list[Any], width: int) -> bool:
    if isinstance(value, np.ndarray) and all(isinstance(part, np.ndarray) for part in parts):
        if width:
            parts = [np.pad(p, ((0, 0), (width - p.shape[1], 0))) for p in parts]
        try:
            whole = np.concatenate(parts)
        except ValueError:
            return False
        return whole.shape == value.shape and bool((whole == value).all())
    return False
