"""The toy library as goldens need it: with measured sensitivity and weights."""

import hashlib

import msgspec
import numpy as np

from conformance.core.schedule import Request
from conformance.core.sensitivity import Sensitivity, Signal
from conformance.tools.golden.format import Golden, Provenance, Recorded
from conformance.tools.golden.staging import stage
from miniatures.library import ToyLibrary, subject
from miniatures.model import ToyModel


class SensitiveLibrary(ToyLibrary):
    """Passes all checks of the gate; each ``scale`` is another model."""

    nats = 1.0
    scale = 1.0

    def load(self, family, *, dtype, seed):
        return Scaled(self.scale)

    def sensitivity(self, family, *, dtype, seed):
        return Sensitivity(8, 1, 3.0, (Signal("drop", "token 2", self.nats),), ())

    def fingerprint(self, model):
        return hashlib.sha256(str(self.scale).encode()).hexdigest()


class Scaled(ToyModel):
    """The toy model with all its scores multiplied, as by other weights of its head."""

    def __init__(self, scale):
        super().__init__()
        self.scale = np.float32(scale)

    def __call__(self, *arguments, **more):
        return super().__call__(*arguments, **more) * self.scale


def staged(library=None):
    """A golden of the toy family, through the gate."""
    return stage(subject(library or SensitiveLibrary()))


def recorded(tokens=(3, 4), margins=(0.5, 0.25), noise=(1e-6, 1e-6), top=None, name="short"):
    """One line by hand: the best of three tokens, and two others."""
    top = top or tuple(
        ((token, -0.5), (7, -0.5 - margin), (8, -2.0))
        for token, margin in zip(tokens, margins, strict=True)
    )
    return Recorded(Request(name, (1, 2), len(tokens)), tokens, margins, noise, top)


def golden(*lines, **changed):
    """A golden by hand, with ``changed`` fields of it or of its provenance."""
    source = Provenance("a" * 64, "b" * 64, {"toy": "1"}, "abacus", "single stream")
    known = {name: value for name, value in changed.items() if name in source.__struct_fields__}
    rest = {name: value for name, value in changed.items() if name not in known}
    made = Golden("toy", "calm", "float32", 0, msgspec.structs.replace(source, **known), lines)
    return msgspec.structs.replace(made, **rest)
