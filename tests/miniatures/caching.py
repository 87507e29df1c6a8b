"""Computes equal prefixes of prompts once, on the toy model: one engine is right, some fake it."""

import dataclasses

import msgspec

from conformance.core.engine import Capability
from conformance.scenarios.foreseen import common
from miniatures.fakes import AnswersAtOnce, JoinsLate
from miniatures.right import ContinuousBatching


class KeepsPrefixes(ContinuousBatching):
    """Keeps whole blocks of each prompt that came to its end in prefill."""

    capabilities = ContinuousBatching.capabilities | {Capability.PREFIX_CACHING}

    def __init__(self, model, options):
        super().__init__(model, options)
        self.kept = []  # the least recently used first
        self.reused = {}

    def step(self):
        self.reused = {}
        output = super().step()
        return dataclasses.replace(output, reused=self.reused)

    def admit(self):
        waiting = list(self.queue)
        super().admit()
        for row in waiting:
            if row not in self.queue and self.options.prefix_caching is not None:
                self.reuse(row)

    def reuse(self, row):
        """Begin after the longest kept prefix; the last token is always computed."""
        prompt = tuple(row.todo)
        found = [prefix for prefix in self.kept if self.fits(prefix, prompt)]
        if found:
            best = max(found, key=len)
            self.reused[row.name] = len(best)
            row.fed, row.todo = list(best), list(prompt[len(best) :])

    def fits(self, prefix, prompt):
        return len(prefix) < len(prompt) and prompt[: len(prefix)] == prefix

    def start_decoding(self, processed):
        before = list(self.decode)
        super().start_decoding(processed)
        if self.options.prefix_caching is not None:
            for row in self.decode:
                if row not in before:
                    self.keep(tuple(row.request.prompt))

    def keep(self, prompt):
        for prefix in self.prefixes(prompt):
            if prefix in self.kept:
                self.kept.remove(prefix)
            self.kept.append(prefix)
        del self.kept[: max(0, len(self.kept) - self.room())]

    def prefixes(self, prompt):
        size = self.options.prefix_caching.block_size
        return [prompt[:end] for end in range(size, len(prompt) + 1, size)]

    def room(self):
        """Prefixes that are kept: each is one block more than another."""
        caching = self.options.prefix_caching
        return 0 if caching.max_bytes == 0 else caching.blocks


class NeverReuses(KeepsPrefixes):
    """Keeps nothing."""

    def room(self):
        return 0


class ReusesWholePrompts(KeepsPrefixes):
    """Goes on from the end of an earlier prompt, never from within one."""

    def prefixes(self, prompt):
        return [prompt]


class AdmitsOne(KeepsPrefixes):
    """Begins one prompt at a time."""

    def __init__(self, model, options):
        super().__init__(model, msgspec.structs.replace(options, prefill_batch_size=1))


class ReusesWhenIdle(JoinsLate, KeepsPrefixes):
    """Takes late requests only when all others have ended."""


class NeverForgets(KeepsPrefixes):
    """Has space for all prefixes."""

    def room(self):
        return 10_000


class ReusesAtOnce(AnswersAtOnce, KeepsPrefixes):
    """Runs to the end in every step."""


class KeepsLongOnes(KeepsPrefixes):
    """Reuses no prefix of fewer than 20 tokens, which is a rule that an engine may declare."""

    def fits(self, prefix, prompt):
        return len(prefix) >= 20 and super().fits(prefix, prompt)


class KeepsEnded(KeepsPrefixes):
    """Keeps a prompt when its request ends, and only if no other one decodes then."""

    def start_decoding(self, processed):
        ContinuousBatching.start_decoding(self, processed)

    def step(self):
        before = {row.name: row for row in self.decode}
        output = super().step()
        ended = [e.request_id for e in output.events if e.finish_reason]
        for name in ended if self.options.prefix_caching is not None else ():
            if name in before and not self.decode:
                self.keep(tuple(before[name].request.prompt))
        return output


class CutsSequences(KeepsPrefixes):
    """Keeps prompts, and outputs when they end, and cuts them wherever another prompt differs."""

    def leave(self, ended):
        super().leave(ended)
        for row in ended if self.options.prefix_caching is not None else ():
            self.keep((*row.fed, *row.todo))

    def prefixes(self, prompt):
        return [prompt]

    def room(self):
        return self.options.prefix_caching.snapshots

    def reuse(self, row):
        prompt = tuple(row.todo)
        count = max((common(prompt[:-1], kept) for kept in self.kept), default=0)
        if count:
            self.reused[row.name] = count
            row.fed, row.todo = list(prompt[:count]), list(prompt[count:])
