"""An invalid call, and its effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.core.trace import ProbeResult


def watched(
    kind: str, call: Callable[[], object], state: Callable[[], Mapping[str, object]]
) -> ProbeResult:
    """Make ``call``, an invalid call of this ``kind``, and compare the ``state`` before and after.

    Args:
        state: everything that a wrong call could change, as plain values by name.
    """
    before = state()
    error = None
    try:
        call()
    except Exception as raised:  # noqa: BLE001 - whatever it raises is the result
        error = f"{type(raised).__name__}: {raised}"
    after = state()
    changed = tuple(
        f"{name}: {before[name]} became {after[name]}"
        for name in before
        if before[name] != after[name]
    )
    return ProbeResult(kind, error, changed)
