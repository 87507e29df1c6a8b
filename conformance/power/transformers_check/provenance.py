"""Records verifications in the provenance of goldens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from conformance.power.transformers_check.check_results import Result, State
from conformance.power.transformers_check.known_differences import STEPS
from conformance.tools.golden.format import (
    Verification,
    load_golden,
    put_verified,
    to_text,
    write_whole,
)
from conformance.tools.golden.paths import golden_path


def write_verified(root: Path, results: Sequence[Result]) -> str:
    """Write each family's verification into its golden, or remove it if it no longer holds.

    Raises:
        GoldenError: a golden is damaged, or cannot be written.
    """
    done, lacking, removed = 0, [], []
    for result in results:
        path = golden_path(root, result.library, result.family)
        if not path.exists():
            lacking += [result.family] if result.verified else []
        elif result.verified:
            put_verified(path, verification(result))
            done += 1
        elif remove_verified(path):
            removed.append(result.family)
    without = f"; no golden of {', '.join(lacking)}" if lacking else ""
    no_more = f"; removed from those of {', '.join(removed)}" if removed else ""
    return f"written to {done} goldens{without}{no_more}"


def remove_verified(path: Path) -> bool:
    """Remove the verification from a golden; returns whether there was one.

    Raises:
        GoldenError: the golden is damaged, or cannot be written.
    """
    golden = load_golden(path)
    if golden.provenance.verified is None:
        return False
    provenance = msgspec.structs.replace(golden.provenance, verified=None)
    write_whole(path, to_text(msgspec.structs.replace(golden, provenance=provenance)))
    return True


def verification(result: Result) -> Verification:
    """The verification for a golden: the version, and the deviations from its family.

    Deviations are fields that both sides got, and worked-around defects of the other side.
    """
    agreed = result.stream if result.state is State.AGREES else result.proof
    assert agreed is not None
    version = result.versions["transformers and torch"].partition(",")[0]
    other = [f"{name}={value}" for name, value in sorted(result.both.items())]
    other += [f"but for {cause.at}" for cause in result.causes]
    return Verification(
        against=f"{version} ({', '.join(other)})" if other else version,
        difference=agreed.difference,
        tokens=STEPS,
    )
