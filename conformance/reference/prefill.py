"""Three ways to bring prompts in: each alone, padded together, together with rows that decode."""

from __future__ import annotations

from typing import ClassVar

from conformance.engine import Capability
from conformance.reference.engine import ReferenceEngine, output
from conformance.reference.forward import alone, forward
from conformance.trace import StepOutput


class Solo(ReferenceEngine):
    """Each prompt alone by its own caches: there is never any padding, of drafts neither."""

    name: ClassVar[str] = "reference_solo"
    capabilities: ClassVar[frozenset[Capability]] = ReferenceEngine.capabilities - {
        Capability.TOGETHER
    }
    pads: ClassVar[bool] = False

    def step(self) -> StepOutput:
        """A decode pass, then the next piece of each prompt in a pass of its own."""
        decoded, _ = self.decode()
        self.finish(decoded.events)
        self.admit()
        processed = self.start_decoding()
        for row in self.prefilling:
            piece = row.pieces.pop(0)
            alone(self.model, row.feed(piece))
            processed[row.name] = piece
        return output(decoded, processed)


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
    """Pieces of prompts and rows that decode in one pass.

    What comes out of a row is chosen from the logits at the row's own last token, which is not the
    pass's last column. The last token of a prompt in pieces goes with its last piece.
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
