"""How a toy row chooses its token: greedy, seeded, by rank, by a chain; after logits processors."""

import zlib

import numpy as np

from conformance.backend import sampler_properties
from conformance.core.grammar import Grammar
from miniatures.model import VOCAB, normalise


def due_after(produced, budget):
    """The token that a thinking budget forces next; ``None`` if the model chooses."""
    thinks, thought, exceeded, at, due = not budget.later, 0, False, 0, None
    for token in produced:
        due = None
        if token == budget.opened_by:
            thinks = True
        elif token == budget.forced[-1]:
            thinks, exceeded, at = False, False, 0
        else:
            thought += thinks
            exceeded |= thinks and thought > budget.tokens
            if exceeded and at < len(budget.forced):
                due, at = budget.forced[at], at + 1
    return due


class Chooser:
    """Shared by the single stream and the engines, as a library shares its samplers."""

    def __init__(self, request, forced=None):
        self.sampler = request.sampler
        self.name = request.request_id
        self.processors = [
            Grammar(**processor.args) if processor.kind == "grammar" else dict(processor.args)
            for processor in request.processors
        ]
        self.forced = forced
        self.budget, self.given = request.budget, []
        self.calls = 0
        # The logprob that ``min_p`` is a share of, if not the row's largest.
        self.best = None

    def logprobs(self, history, logits):
        """``[VOCAB]`` after the processors, which see all tokens of the row so far."""
        logits = logits.copy()
        for arguments in self.processors:
            if isinstance(arguments, Grammar):
                arguments.advance(history)
                logits[~arguments.allowed(len(logits))] = -np.inf
                continue
            for token, bias in arguments.get("logit_bias", {}).items():
                logits[int(token)] += bias
            if "repetition_penalty" in arguments:
                recent = list(set(history[-arguments.get("repetition_context_size", 20) :]))
                logits[recent] -= np.float32(arguments["repetition_penalty"])
            if "frequency_penalty" in arguments:
                for token in history:
                    logits[token] -= np.float32(0.1)
        return normalise(logits)

    def token(self, logprobs):
        """The next token: the one that ends a row's thinking, if it is due."""
        token = self.chosen(logprobs)
        due = due_after(self.given, self.budget) if self.budget is not None else None
        self.given.append(token if due is None else due)
        return self.given[-1]

    def chosen(self, logprobs):
        """The token of the row's own choice: of ``forced``, if they are given."""
        call, self.calls = self.calls, self.calls + 1
        if self.forced is not None:
            return self.forced[min(call, len(self.forced) - 1)]
        if self.sampler is None or self.sampler.kind == "compared":
            return int(logprobs.argmax())
        if self.sampler.kind == "seeded":
            rng = np.random.default_rng((int(self.sampler.args["seed"]), call))
            scaled = logprobs / self.sampler.args["temperature"]
            return int((scaled + rng.gumbel(size=len(logprobs))).argmax())
        if self.sampler.kind == "random":
            rng = np.random.default_rng((zlib.crc32(self.name.encode()), call))
            scaled = self.left(logprobs) / self.sampler.args["temp"]
            return int((scaled + rng.gumbel(size=VOCAB)).argmax())
        if self.sampler.kind == "rank":
            return int(np.argsort(logprobs, kind="stable")[-1 - self.sampler.args["rank"]])
        left = self.left(logprobs)
        if not np.isfinite(left).any():
            return 0
        order, probs = np.argsort(left, kind="stable"), np.exp(normalise(left))
        likely = order[probs[order] > self.sampler.args.get("xtc_threshold", 1.0)]
        return int(likely[0] if len(likely) else order[-1])

    def left(self, logprobs):
        """The logprobs, with -inf for what the filters of the sampler remove: the unlikely."""
        kept, args = np.ones(len(logprobs), bool), self.sampler.args
        if "top_p" in args:
            kept &= sampler_properties.top_p(logprobs, args["top_p"])
        if "min_p" in args:
            best = logprobs.max() if self.best is None else self.best
            kept &= logprobs >= best + np.log(args["min_p"])
        if "top_k" in args and self.sampler.kind == "random":
            kept &= sampler_properties.top_k(logprobs, args["top_k"])
        return np.where(kept, logprobs, -np.inf)
