"""Three ways of prefill: one prompt per pass, padded prompts, prompts with decoding rows."""

from __future__ import annotations

from typing import Any, ClassVar

from mlx_lm.models.cache import make_prompt_cache

from conformance.core.engine import Capability
from conformance.core.trace import StepOutput
from conformance.reference.caches.wrap import shapes
from conformance.reference.engine import ReferenceEngine, output
from conformance.reference.forward import Feed, forward, single_row

# For models whose recurrent state grows with the first tokens, like longcat_flash_ngram's last ids.
_WIDENS = (
    "rows of unequal length in one pass are not supported: the model's state widens with each of "
    "the first tokens"
)


class Solo(ReferenceEngine):
    """One prompt per pass, with its own caches: nothing is ever padded, not even drafts."""

    name: ClassVar[str] = "reference_solo"
    capabilities: ClassVar[frozenset[Capability]] = ReferenceEngine.capabilities - {
        Capability.TOGETHER
    }
    pads: ClassVar[bool] = False

    def step(self) -> StepOutput:
        """A decode pass, then the next piece of each prompt in its own pass."""
        decoded, _ = self.decode()
        self.finish(decoded.events)
        self.admit()
        processed = self.start_decoding()
        for row in self.prefilling:
            piece = row.pieces.pop(0)
            single_row(self.model, row.feed(piece))
            processed[row.name] = piece
        return output(decoded, processed)

    @classmethod
    def apart(cls, model: Any) -> str:
        """Overridden because growing states are never padded here."""
        caches, widths = make_prompt_cache(model), set()
        for _ in range(2):
            single_row(model, Feed(caches, (0,)))
            widths.add(shapes(caches))
        return super().apart(model) or (_WIDENS if len(widths) > 1 else "")


class Padded(ReferenceEngine):
    """The next pieces of all prompts in one pass, padded on the right."""

    name: ClassVar[str] = "reference_padded"

    def step(self) -> StepOutput:
        """A decode pass, then a prefill pass."""
        decoded, _ = self.decode()
        self.finish(decoded.events)
        self.admit()
        processed = self.start_decoding()
        pieces = {row.name: row.pieces.pop(0) for row in self.prefilling}
        if pieces:
            forward(self.model, [row.feed(pieces[row.name]) for row in self.prefilling])
        return output(decoded, processed | pieces)


class Mixed(ReferenceEngine):
    """Pieces of prompts and decoding rows in one pass.

    The output of a row is chosen from the logits at the row's own last token, which need not be in
    the last column. The last token of a prompt in pieces is in its last piece.
    """

    name: ClassVar[str] = "reference_mixed"
    whole_prompt: ClassVar[bool] = True

    def step(self) -> StepOutput:
        """One pass for all."""
        self.admit()
        processed = self.start_decoding()
        rows = list(self.prefilling)
        pieces = {row.name: row.pieces.pop(0) for row in rows}
        decoded, logits = self.decode([row.feed(pieces[row.name]) for row in rows])
        complete = [(row, mine) for row, mine in zip(rows, logits, strict=True) if not row.todo]
        for row, mine in complete:
            decoded.events.append(self.first_token(row, mine[-1]))
            self.prefilling.remove(row)
            self.decoding.append(row)
        self.finish(decoded.events)
        return output(decoded, processed | pieces)
