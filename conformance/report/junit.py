"""A result as named properties, for JUnit files and for pytest's ``user_properties``."""

from __future__ import annotations

from conformance.verdict import CaseResult

PREFIX = "conformance."


def properties(result: CaseResult) -> list[tuple[str, str]]:
    """The figures of a result, small enough for a JUnit file; what is not known is left out."""
    values = {
        "case": result.case,
        "verdict": str(result.verdict),
        "expected": str(result.expected).lower(),
        "known": result.known,
        "max_abs_diff": result.max_abs_diff,
        "noise": result.noise,
        "ratio": result.ratio,
        "first_bad_step": result.first_bad_step,
        "forward_seconds": round(result.forward_seconds, 6),
        "device": result.device,
        "versions": ", ".join(f"{name} {version}" for name, version in result.versions.items()),
    }
    return [(PREFIX + name, str(value)) for name, value in values.items() if value is not None]
