"""A registry of toy engines, right and wrong, and what is explored of it."""

import contextlib

import pytest
from miniatures import wrong
from miniatures.library import ToyLibrary
from miniatures.model import VOCAB
from miniatures.right import ContinuousBatching

from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Facts, Family
from conformance.core.faults import Fault
from conformance.run.registry import Registry
from conformance.tools.explore.player import Player
from conformance.tools.explore.results import ExploreUnit

MESSAGES = {
    "dumb": "[metal_kernel] No Metal back-end.",
    "curt": "prompts of this length are not supported",
    "broken": "shapes (3,) and (4,) cannot be broadcast",
    "brittle": "shapes (3,) and (4,) cannot be broadcast",
}


class Library(ToyLibrary):
    """Cannot load two families, cannot decode two, and of two not what is long."""

    def load(self, family, *, dtype, seed):
        if family.name == "torn":
            raise ModelError("weights are missing")
        if family.name == "beyond":
            raise Unsupported("model type beyond is not supported")
        model = super().load(family, dtype=dtype, seed=seed)
        self.at_hand = family.name
        return model

    def single_stream(self, model, request, **how):
        message = MESSAGES.get(self.at_hand)
        if message and (len(request.prompt) > 8 or self.at_hand in ("dumb", "broken")):
            raise RuntimeError(message)
        return super().single_stream(model, request, **how)


class FallsOverTwo(ContinuousBatching):
    """Raises where two rows decode."""

    def step(self):
        if len(self.decode) > 1:
            raise ValueError("two rows")
        return super().step()


class RefusesTwo(ContinuousBatching):
    """Says in its own words that it cannot decode two rows."""

    def step(self):
        if len(self.decode) > 1:
            raise NotImplementedError("two rows are not supported")
        return super().step()


@contextlib.contextmanager
def first_token_lost(hits):
    """The right engine loses first tokens, as ``LosesFirstToken`` does."""
    names = ("start_decoding", "emit")
    before = {name: ContinuousBatching.__dict__[name] for name in names}

    def start_decoding(self, processed):
        hits.hit()
        there = list(self.decode)
        before["start_decoding"](self, processed)
        if there:
            self.muted = {row.name for row in self.decode if row not in there}

    def emit(self, row, token, logprobs, reason):
        if len(row.produced) == 1 and row.name in getattr(self, "muted", ()):
            return []
        return before["emit"](self, row, token, logprobs, reason)

    ContinuousBatching.start_decoding, ContinuousBatching.emit = start_decoding, emit
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(ContinuousBatching, name, value)


FAULT = Fault(
    "B1.lost",
    "lists",
    "https://example.org",
    "the first token of a row that joins is lost",
    "right",
    (),
    ("staggered",),
    first_token_lost,
)


def engines():
    """All engines of the miniatures, and those of this module."""
    kinds = [kind for kind in vars(wrong).values() if isinstance(kind, type)]
    found = [kind for kind in kinds if issubclass(kind, ContinuousBatching)]
    return {kind.__name__: kind for kind in (*found, FallsOverTwo, RefusesTwo)}


@pytest.fixture(scope="session")
def registry():
    names = ("calm", "torn", "beyond", *MESSAGES)
    return Registry(
        libraries={"toy": Library()},
        families={
            ("toy", n): Family(n, Facts(library="toy"), {"vocab_size": VOCAB}) for n in names
        },
        engines=engines(),
        scenarios={},
        faults={FAULT.key: FAULT},
        plugins=(),
    )


@pytest.fixture
def unit():
    def make(engine="ContinuousBatching", examples=60, family="calm", **more):
        return ExploreUnit(engine, family, "float32", 0, examples, **more)

    return make


@pytest.fixture
def player(registry, unit):
    def make(engine="ContinuousBatching", **more):
        return Player(registry, unit(engine, **more))

    return make
