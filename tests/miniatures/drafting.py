"""Drafts and verifies on the toy model: one engine is right, others fake it."""

import dataclasses

import msgspec

from conformance.core.engine import Capability
from conformance.core.phases import ForwardCall
from conformance.core.trace import TokenEvent
from miniatures.right import ContinuousBatching

OWN = 3  # tokens of a draft whose right ones are not set


class Drafting(ContinuousBatching):
    """While a batch drafts it admits no request; new ones wait for its end."""

    capabilities = ContinuousBatching.capabilities | {Capability.SPECULATIVE}

    def __init__(self, model, options):
        super().__init__(model, options)
        self.round = -1
        self.drafted = {}
        self.proposed = {}

    def row(self, submission):
        row = super().row(submission)
        row.hints = submission.hints
        return row

    def admit(self):
        if self.options.drafting is None or not self.decode:
            super().admit()

    def step(self):
        self.drafted, self.proposed = {}, {}
        output = super().step()
        return dataclasses.replace(output, drafted=self.drafted, proposed=self.proposed)

    def decode_step(self):
        if self.options.drafting is None or not self.drafts():
            return super().decode_step()
        self.round += 1
        drafts = {row.name: self.draft(row, place) for place, row in enumerate(self.decode)}
        mark, batch = len(self.model.calls), len(self.decode)
        events, ended = [], []
        for row in self.decode:
            events += self.verify(row, drafts[row.name])
            if events and events[-1].finish_reason is not None:
                ended.append(row)
        # One call has verified them all.
        del self.model.calls[mark:]
        width = 1 + max(len(draft) for draft in drafts.values())
        self.model.calls.append(ForwardCall(batch, width))
        self.leave(ended)
        return events

    def drafts(self):
        """Whether this step drafts: the first tokens of prompts come without."""
        return all(row.produced for row in self.decode)

    def draft(self, row, place):
        """As the schedule wants it: so many of the oracle's tokens, then wrong ones."""
        drafting = self.options.drafting
        size = (drafting.block_size or OWN + 1) - 1
        start = len(row.produced)
        own = tuple(self.own(row, size))
        self.drafted[row.name], self.proposed[row.name] = size, own
        if row.hints is None:  # what follows is drawn
            return list(own)
        foreseen = list(row.hints.right[start:][:size])
        right = self.right(self.round + place)
        wrong = list(row.hints.wrong[start:][:size])
        return foreseen[:right] + wrong[right:] + [0] * (size - len(foreseen))

    def own(self, row, size):
        """What it would draft itself: the row's last token and those after it."""
        return range(row.produced[-1], row.produced[-1] + size)

    def right(self, turn):
        """How many tokens of a draft are right."""
        counts = self.options.drafting.right
        return counts[turn % len(counts)] if counts else 0

    def accepted(self, draft, chosen):
        """How many tokens of the draft are accepted, given those that the model chooses."""
        agree = [mine == its for mine, its in zip(draft, chosen, strict=False)]
        return agree.index(False) if False in agree else len(agree)

    def verify(self, row, draft):
        """The draft's tokens that the model would have chosen, and the one after them."""
        fed, calls, chosen = [*row.fed, *row.todo], row.chooser.calls, []
        for known in range(len(draft) + 1):
            history = fed + draft[:known]
            (scores,) = self.model([history])
            chosen.append(row.chooser.token(row.chooser.logprobs(history, scores)))
        count = self.accepted(draft, chosen) + 1
        events = []
        for token in chosen[:count]:
            row.fed += row.todo
            row.todo = [token]
            row.produced.append(token)
            reason = self.reason(row)
            events.append(TokenEvent(row.name, token, finish_reason=reason))
            if reason is not None:
                break
        row.chooser.calls = calls + len(events)
        return events

    def emit(self, row, token, logprobs, reason):
        if self.options.drafting is None:
            return super().emit(row, token, logprobs, reason)
        return [TokenEvent(row.name, token, finish_reason=reason)]


class NeverDrafts(Drafting):
    """Decodes token by token."""

    def drafts(self):
        return False


class TakesNoDraftWhole(Drafting):
    """Looks at all tokens of a draft but the last."""

    def accepted(self, draft, chosen):
        return min(super().accepted(draft, chosen), len(draft) - 1)


class TakesDraftsWhole(Drafting):
    """Takes a draft if all of it is right, and nothing of it otherwise."""

    def accepted(self, draft, chosen):
        count = super().accepted(draft, chosen)
        return count if count == len(draft) else 0


class GuessesTheFirst(Drafting):
    """Has drafts whose first token is always right, and none where nobody knows what is right."""

    def drafts(self):
        return super().drafts() and all(row.hints is not None for row in self.decode)

    def right(self, turn):
        return max(1, super().right(turn))


class DraftsForThree(Drafting):
    """Drafts in small batches only."""

    def drafts(self):
        return super().drafts() and len(self.decode) <= 3


class DraftsAlone(Drafting):
    """Decodes token by token as soon as a request waits."""

    def drafts(self):
        return super().drafts() and not self.queue


class DraftsOneByOne(Drafting):
    """Has one row, whatever the options."""

    def __init__(self, model, options):
        super().__init__(model, msgspec.structs.replace(options, completion_batch_size=1))


class DraftsWithoutStages(Drafting):
    """Does not report the stages of its requests."""

    def stages(self):
        return {}


class GoesOnFromAnotherRow(Drafting):
    """When a row has left, the others draft from the last token of the row before them."""

    most = 0

    def own(self, row, size):
        self.most = max(self.most, len(self.decode))
        place = self.decode.index(row) - (len(self.decode) < self.most)
        return super().own(self.decode[place], size)


class AlwaysTheSame(Drafting):
    """Drafts the same tokens for all rows."""

    def own(self, row, size):
        del row
        return range(size)
