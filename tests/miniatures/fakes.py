"""Engines whose output is right, but which do not do what a scenario is about."""

from collections import Counter

import msgspec

from conformance.core.trace import StepOutput
from miniatures.right import ContinuousBatching


class OneByOne(ContinuousBatching):
    """Decodes one request after another; the others wait."""

    def __init__(self, model, options):
        super().__init__(model, msgspec.structs.replace(options, completion_batch_size=1))


class NeverPads(ContinuousBatching):
    """Prefills each prompt in a call of its own."""

    def prefill_step(self, processed):
        together = self.prefill
        for row in together:
            self.prefill = [row]
            super().prefill_step(processed)
        self.prefill = together


class JoinsLate(ContinuousBatching):
    """Takes late requests only when all others have ended."""

    def admit(self):
        if not self.decode:
            super().admit()


class PrefillsWhole(ContinuousBatching):
    """Ignores the size of prefill pieces."""

    def piece(self):
        return 10_000


class PrefillsAtOnce(ContinuousBatching):
    """Does not come back from a step before all prompts are processed."""

    def step(self):
        return joined(super().step, lambda: self.prefill)


class NeverQuantizes(ContinuousBatching):
    """Takes the options and keeps all bits."""

    def layers(self):
        return []


class HasMoreSlots(ContinuousBatching):
    """Takes whatever comes, however few slots it was given."""

    def admit(self):
        self.prefill += self.queue
        self.queue = []


class PadsAlways(ContinuousBatching):
    """Computes one column more than any prompt has."""

    def forward(self, rows, length):
        return super().forward(rows, length + 1 if length > 1 else 1)


class Unmetered(ContinuousBatching):
    """Computes by another path than the model's call, so that nothing is metered."""

    def forward(self, rows, length):
        logits = super().forward(rows, length)
        self.model.calls.pop()
        return logits


class WithoutProbes(ContinuousBatching):
    """Declares invalid calls, but names none."""

    @classmethod
    def probes(cls):
        return ()


class WithoutStages(ContinuousBatching):
    """Does not report stages, so that nothing that waits for a stage can fire."""

    def stages(self):
        return {}


class AnswersAtOnce(ContinuousBatching):
    """Runs to the end in every step: no request can join or be removed."""

    def step(self):
        return joined(super().step, lambda: self.queue or self.prefill or self.decode)


def joined(step, more):
    """What the steps gave together that an engine made while there was ``more`` to do."""
    events, processed, reused = [], Counter(), {}
    output = step()
    while True:
        events += output.events
        processed.update(output.processed)
        reused |= output.reused
        if not more():
            return StepOutput(tuple(events), dict(processed), reused)
        output = step()


FAKES = (
    OneByOne,
    NeverPads,
    JoinsLate,
    PrefillsWhole,
    PrefillsAtOnce,
    NeverQuantizes,
    HasMoreSlots,
    PadsAlways,
    Unmetered,
    WithoutProbes,
    WithoutStages,
    AnswersAtOnce,
)
