"""A checkpoint's golden in a user's folder: the first run writes it, later runs compare with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.checks.expectations import Expectations
from conformance.core.engine import Engine
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.tools.checkpoints.folder import look
from conformance.tools.checkpoints.opening import room
from conformance.tools.golden.checking import check
from conformance.tools.golden.format import golden_path
from conformance.tools.golden.recipe import DTYPE
from conformance.tools.golden.staging import accept, propose


@dataclass(frozen=True)
class Held:
    """The result for a checkpoint's golden: whether it holds, and messages about it."""

    good: bool
    messages: tuple[str, ...]


def hold(
    library: Library,
    family: Family,
    root: Path,
    *,
    engines: Sequence[type[Engine]] = (),
    expectations: Expectations | None = None,
    force: bool = False,
) -> Held:
    """Compare the checkpoint with its golden below ``root``; if there is none, write it.

    A golden is in float32 whatever the checkpoint's dtype: there defects are easiest to distinguish
    from rounding, and the golden holds on every device.

    Raises:
        CheckpointError: a run in float32 needs more memory than is available, unless ``force``.
        GoldenError: the golden can't be written.
    """
    assert family.checkpoint is not None
    room(look(Path(family.checkpoint.folder)), DTYPE, force=force)
    path = golden_path(root, library.name, family.name)
    pair = (library, family)
    if not path.exists():
        made = propose(pair, root=root, expectations=expectations)
        if made.refused:
            return Held(good=False, messages=(f"{path}: no golden was written: {made.refused}",))
        accept([made])
        return Held(good=True, messages=(f"{path}: written, as there was none",))
    found = check(pair, root=root, engines=engines, files_only=False, expectations=expectations)
    if found.problems:
        again = "if the change is intended, remove it, and the next run writes a new one"
        problems = [text.partition("; `conformance golden")[0] for text in found.problems]
        return Held(good=False, messages=(*problems, f"{path}: {again}"))
    differences = [str(difference) for difference in found.differences]
    return Held(found.good, (f"{path}: {found.meaning}", *differences))
