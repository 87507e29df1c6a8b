"""The toy library, and libraries that are wrong before any batch is made."""

import msgspec
import numpy as np

from conformance.core.family import Facts, Family
from conformance.core.library import Coverage, Library, Solo
from conformance.core.phases import Phases
from conformance.core.schedule import Media
from conformance.core.trace import Stream
from conformance.reference.subject import Subject
from miniatures.choosing import Chooser
from miniatures.model import VOCAB, ToyModel, normalise

EPS = 2.0**-23
# Token ids from here on are images.
TEXT = VOCAB - 6


class ToyLibrary(Library):
    """Decodes one request at a time; counts its calls."""

    name = "toy"
    schemes = ("uniform", "turboquant")
    tied = False

    def __init__(self):
        self.streams: list[tuple[str, int]] = []
        self.passed: list[tuple[int, ...]] = []
        self.churns = 0

    def bounds_caches(self, model):
        return True

    @property
    def passes(self):
        return len(self.passed)

    def coverage(self):
        return Coverage(("toy",), {})

    def load(self, family, *, dtype, seed):
        return ToyModel(tied=self.tied)

    def meter(self, model, *, evaluate=False):
        return model.calls

    def head_sizes(self, model):
        return frozenset({64})

    def single_stream(self, model, request, *, options, steps, prefix=None, forced=None):
        self.streams.append((request.request_id, steps))
        fed = [*(prefix or ()), *request.prompt]
        chooser, tokens, rows = Chooser(request, forced), [], []
        for _ in range(steps):
            logits = self.logits(model, fed, options, alone=len(request.prompt))
            rows.append(chooser.logprobs(fed, logits))
            tokens.append(chooser.token(rows[-1]))
            fed.append(tokens[-1])
        table = np.stack(rows) if rows else np.zeros((0, VOCAB), np.float32)
        return Solo(Stream(tuple(tokens), table), fed)

    def logits(self, model, fed, options, *, alone):
        return model([fed], bound=options.max_kv_size)[0]

    def compose(self, model, parts):
        """An image is a number of equal tokens, which stand for its content."""
        prompt, placed = [], []
        for part in parts:
            if isinstance(part, Media):
                start = len(prompt)
                prompt += [TEXT + (part.content + 3 * part.twin) % 6] * sum(part.size)
                placed.append(msgspec.structs.replace(part, span=(start, len(prompt))))
            else:
                prompt += part
        return tuple(prompt), tuple(placed)

    def stateless(self, model, request, tokens):
        return normalise(model([request.prompt + tokens])[0])

    def equal_rows(self, model, request, tokens, rows):
        return np.stack([normalise(row) for row in model([request.prompt + tokens] * rows)])

    def teacher_forced(self, model, request, tokens, *, options, ulps=0.0, seed=0):
        fed = request.prompt + tuple(tokens[:-1])
        self.passed.append(fed)
        ends = range(len(request.prompt), len(fed) + 1)
        logits = np.stack([model([fed[:end]])[0] for end in ends])
        u = np.random.default_rng(seed).uniform(-1, 1, logits.shape)
        return normalise((logits * (1 + ulps * EPS * u)).astype(np.float32))

    def churn(self):
        self.churns += 1

    def versions(self):
        return {"toy": "1"}

    def device(self):
        return "abacus"


class TiedLibrary(ToyLibrary):
    """Its model has a near-tie at each step."""

    tied = True


class InsensitiveLibrary(ToyLibrary):
    """Its layers are not reached by the perturbation."""

    def teacher_forced(self, model, request, tokens, *, options, ulps=0.0, seed=0):
        return super().teacher_forced(model, request, tokens, options=options)


class RestlessLibrary(ToyLibrary):
    """The single stream differs each time, as when uninitialized memory is read."""

    def logits(self, model, fed, options, *, alone):
        model.drift = getattr(model, "drift", 0.0) + 1e-3
        logits = super().logits(model, fed, options, alone=alone).copy()
        logits[0] += np.float32(model.drift)
        return logits


class PieceworkLibrary(ToyLibrary):
    """A prompt that is cut into pieces gives something else than as a whole."""

    def logits(self, model, fed, options, *, alone):
        logits = super().logits(model, fed, options, alone=alone).copy()
        if options.prefill_step_size < alone:
            logits[0] += np.float32(0.01)
        return logits


class ForgetfulLibrary(ToyLibrary):
    """Its cache is off by one; the pass without a cache is right."""

    def logits(self, model, fed, options, *, alone):
        return model([fed], offsets=[len(fed) + 1], bound=options.max_kv_size)[0]


class ShakyLibrary(ToyLibrary):
    """The single stream again, with its last bit rounded otherwise: nothing to report."""

    def logits(self, model, fed, options, *, alone):
        model.turn = getattr(model, "turn", 0) + 1
        logits = super().logits(model, fed, options, alone=alone)
        return logits * np.float32(1 + EPS * (model.turn % 2))


def family(window=None):
    """The toy family: text, images of two sizes, a drafter."""
    facts = Facts(
        library="toy",
        modalities=("text", "image"),
        tokens=(0, TEXT),
        window=window,
        sizes={"image": ((3, 3), (2, 6))},
        drafters={"toy": {}},
    )
    return Family("toy", facts, {"vocab_size": VOCAB})


def subject(library=None, *, window=None, seed=0):
    """The toy family's model, loaded."""
    return Subject.load(
        library or ToyLibrary(), family(window), dtype="float32", seed=seed, phases=Phases()
    )


class OverflowingLibrary(ToyLibrary):
    """A perturbation takes its numbers out of range."""

    def teacher_forced(self, model, request, tokens, *, ulps=0.0, **more):
        rows = super().teacher_forced(model, request, tokens, ulps=ulps, **more)
        return rows + np.float32("nan") if ulps else rows
