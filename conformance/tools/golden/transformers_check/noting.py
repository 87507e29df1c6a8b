"""Goldens of families that agree say by whom they were verified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from conformance.tools.golden.format import Verification, load_golden, to_text
from conformance.tools.golden.golden_files import put_verified, write_whole
from conformance.tools.golden.layout import golden_path
from conformance.tools.golden.transformers_check.arranging import STEPS
from conformance.tools.golden.transformers_check.results import Result, State


def note(root: Path, results: Sequence[Result]) -> str:
    """Put into each family's golden by whom it was verified, or take that back where it is not.

    Raises:
        GoldenError: a golden is damaged, or cannot be written.
    """
    done, lacking, back = 0, [], []
    for result in results:
        path = golden_path(root, result.library, result.family)
        if not path.exists():
            lacking += [result.family] if result.verified else []
        elif result.verified:
            put_verified(path, verification(result))
            done += 1
        elif take_back(path):
            back.append(result.family)
    without = f"; no golden of {', '.join(lacking)}" if lacking else ""
    no_more = f"; no longer in those of {', '.join(back)}" if back else ""
    return f"noted in {done} goldens{without}{no_more}"


def take_back(path: Path) -> bool:
    """Make the golden say nothing of a verification; returns whether it did say something.

    Raises:
        GoldenError: it is damaged, or cannot be written.
    """
    golden = load_golden(path)
    if golden.provenance.verified is None:
        return False
    provenance = msgspec.structs.replace(golden.provenance, verified=None)
    write_whole(path, to_text(msgspec.structs.replace(golden, provenance=provenance)))
    return True


def verification(result: Result) -> Verification:
    """What a golden says: the version, and what was otherwise than the golden's family has it.

    That are fields that both sides had, and defects of the other side that were gone round.
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
