"""Keeps whole sequences in two kinds beside its blocks, and reports it; some keep all of one."""

import dataclasses

from conformance.core.engine import Capability
from conformance.core.pooled import KeptSequence, StoreCall, Stored
from miniatures.caching import KeepsPrefixes

TOKEN = 4  # bytes
KINDS = ("assistant", "user", "system")


class StoresSequences(KeepsPrefixes):
    """Gives up the oldest of the least valuable kind that has no fewer than the next one."""

    capabilities = KeepsPrefixes.capabilities | {Capability.STORED}
    prompts = "user"

    def __init__(self, model, options):
        super().__init__(model, options)
        self.sequences = {kind: [] for kind in KINDS}
        self.first = None
        self.calls = []

    def insert(self, submissions):
        super().insert(submissions)
        caching = self.options.prefix_caching
        if caching is not None and caching.times_first is not None and self.first:
            self.bound(int(caching.times_first * TOKEN * len(self.first)))

    def bound(self, most):
        while sum(TOKEN * len(tokens) for of in self.sequences.values() for tokens in of) > most:
            self.give_up_one()
        self.note(StoreCall.BOUND, most=most)

    def start_decoding(self, processed):
        before = list(self.decode)
        super().start_decoding(processed)
        for row in self.decode:
            if row not in before and self.options.prefix_caching is not None:
                self.store(tuple(row.request.prompt), self.prompts)

    def leave(self, ended):
        super().leave(ended)
        for row in ended:
            if self.options.prefix_caching is not None:
                self.store((*row.request.prompt, *row.produced), "assistant")

    def store(self, tokens, kind):
        self.first = self.first or tokens
        for of_kind in self.sequences.values():
            if tokens in of_kind:
                of_kind.remove(tokens)
        self.sequences[kind].append(tokens)
        if sum(map(len, self.sequences.values())) > self.most():
            self.give_up_one()
        self.note(StoreCall.INSERT, tokens, kind=kind, most=self.most())

    def most(self):
        return self.options.prefix_caching.snapshots

    def give_up_one(self):
        answers, questions = self.sequences["assistant"], self.sequences["user"]
        (answers if answers and len(answers) >= len(questions) else questions or answers).pop(0)

    def note(self, call, tokens=(), **more):
        held = [(kind, one) for kind in KINDS for one in self.sequences[kind]]
        kept = tuple(KeptSequence(k, one, TOKEN * len(one), TOKEN * len(one)) for k, one in held)
        counted = {
            kind: (
                len(self.sequences[kind]),
                sum(one.counted for one in kept if one.kind == kind),
            )
            for kind in KINDS
        }
        self.calls.append(Stored(call, tokens, kept=kept, counted=counted, **more))

    def step(self):
        output = super().step()
        made, self.calls = tuple(self.calls), []
        return dataclasses.replace(output, stored=made)


class StoresAll(StoresSequences):
    """Says that it has room for all sequences."""

    def most(self):
        return 10_000


class StoresWithoutABound(StoresSequences):
    """Never looks how many bytes there are."""

    def bound(self, most):
        """Nothing is given up, and no call is made."""


class StoresAnswersAlone(StoresSequences):
    """Puts all it keeps into one kind."""

    prompts = "assistant"
