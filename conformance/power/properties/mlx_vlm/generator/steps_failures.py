"""mlx-vlm's batch of prompts when prefixes cannot be kept, or caches cannot be padded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from conformance.core.faults.patching import replace
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.steps_pieces import Expected, Row, made
from conformance.power.properties.mlx_vlm.generator.steps_pieces_stand_ins import (
    Entry,
    Keeping,
    Next,
)

ar: Any = compat.part("generate.ar")


def failure_properties() -> list[Property]:
    """The properties of ``PromptProcessingBatch``."""
    file, names = "mlx_vlm/generate/ar.py", ("PromptProcessingBatch.*",)
    return [
        Property("generator: prompts that are not kept", file, names, _not_kept),
        Property("generator: caches that are not padded", file, names, _not_padded),
    ]


class _Failing(Keeping):
    """Keeps prefixes, except of its second row."""

    def commit(self, _: Any, tokens: list[int], **options: Any) -> None:
        """Keep the prompt of a row, or fail."""
        super().commit(_, tokens, **options)
        if options["batch_idx"] == 1:
            raise RuntimeError("no room")


def _rows() -> list[Row]:
    return [Row(n, [n, 3, 4, 5][: 4 - n], 1, []) for n in range(3)]


def _blocks(*rows: int) -> list[Any]:
    return [("release", [f"block of {row}"]) for row in rows]


def _not_kept() -> Iterator[str]:
    """The rows decode anyway, and no longer hold blocks."""
    keeping = _Failing(is_checkpoint=False)
    batch = made(Expected(_rows(), None, checkpoints=False), keeping, [Entry()], Next())
    with replace(ar.logger, "disabled", True):
        rows = batch.generate(lambda scores: mx.argmax(scores, axis=-1), "stop")
    if rows._next_tokens.tolist() != [6, 5, 4] or rows._next_top_idx is not None:
        yield f"rows that are not kept begin with {rows._next_tokens}"
    asked = [one for one in keeping.asked if one[0] in ("commit", "release")]
    if [one[0] for one in asked[:2]] != ["commit"] * 2 or asked[2:] != _blocks(0, 1, 2):
        yield f"of rows that are not kept {asked} is asked"


def _not_padded() -> Iterator[str]:
    """The batch is refused with the name of the missing method, and no blocks stay held."""
    for missing in ("prepare", "finalize"):
        keeping, entry = Keeping(is_checkpoint=False), Entry()
        setattr(entry, missing, None)
        try:
            batch = made(Expected(_rows(), None, checkpoints=False), keeping, [entry], Next())
            batch.generate(lambda scores: mx.argmax(scores, axis=-1), "stop")
        except RuntimeError as error:
            if missing not in str(error):
                yield f"caches without {missing} are refused with {error}"
        else:
            yield f"caches without {missing} are taken"
        if [one for one in keeping.asked if one[0] == "release"] != _blocks(0, 1, 2):
            yield f"without {missing} blocks are held: {keeping.asked}"
