"""Memory is looked at where a schedule asks, of rows that were together, or nothing is proved."""

import dataclasses

import mlx.core as mx
import msgspec
import pytest
from miniatures.library import subject
from miniatures.weighing import Weighs

from conformance.core.engine import Capability
from conformance.core.trace import KeptCache, KeptLayer
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.kept import HELD, KEPT


class KeepsEmptyCaches(Weighs):
    """Keeps caches with nothing in them."""

    def give_up(self, request_id, *, computed):
        return KeptCache(request_id, 0, 0)


class Grows(Weighs):
    """Never computes a sum that it carries on."""

    steps = 0

    def pending(self):
        self.steps += 1
        return 5 * self.steps


class KeepsEachStep(Weighs):
    """A list gets an array in each step."""

    def step(self):
        self.kept = [*getattr(self, "kept", ()), mx.ones(4)]
        mx.eval(self.kept[-1])
        return super().step()


class KeepsTheBatch(Weighs):
    """What it keeps of a row is computed, and then a view."""

    def give_up(self, request_id, *, computed):
        return KeptCache(request_id, 10_000, 60_000 if computed else 10_000)


class KeepsThePiece(Weighs):
    """Stores what it has after a piece, of which one layer is a view of the piece's inputs."""

    capabilities = Weighs.capabilities | {Capability.STORED}

    def give_up_stored(self):
        layers = (KeptLayer("0", 40_000, 40_000, 2), KeptLayer("1", 500, 40_500, 1))
        return KeptCache("the shortest", 40_500, 80_500, layers)


class NeverCutsOut(Weighs):
    """Cuts a row out when its cache is computed, and not before."""

    def give_up(self, request_id, *, computed):
        return KeptCache(request_id, 10_000, 10_000 if computed else 60_000)


@pytest.fixture(scope="module")
def toy():
    return subject()


def verdict(toy, engine, scenario):
    schedules = scenario.make(brief_for(toy, engine, 0))
    return judge_batched(toy, engine, scenario, schedules).verdict


@pytest.mark.parametrize(
    ("engine", "held", "kept"),
    [
        (Weighs, Verdict.EXACT, Verdict.EXACT),
        (KeepsEmptyCaches, Verdict.VACUOUS, Verdict.VACUOUS),
        (Grows, Verdict.LEAK, Verdict.EXACT),
        (KeepsEachStep, Verdict.LEAK, Verdict.EXACT),
        (KeepsTheBatch, Verdict.LEAK, Verdict.EXACT),
        (NeverCutsOut, Verdict.EXACT, Verdict.LEAK),
        (KeepsThePiece, Verdict.EXACT, Verdict.LEAK),
    ],
)
def test_what_is_held_is_reported_or_nothing_is_proved(toy, engine, held, kept):
    assert verdict(toy, engine, HELD) is held
    assert verdict(toy, engine, KEPT) is kept


class NotWeighed(KeepsEachStep):
    """Measures nothing itself."""

    capabilities = Weighs.capabilities - {Capability.WEIGHED}


def test_what_lives_is_counted_of_engines_that_measure_nothing(toy):
    (lasting,) = HELD.make(brief_for(toy, NotWeighed, 0))
    outcome = judge_batched(toy, NotWeighed, HELD, [lasting])
    assert {finding.what for finding in outcome.findings} == {
        "in 201 steps of the same rows live arrays grew by 1 a step",
        # Of the 16 bytes its own count takes away 4 for each row: a token more.
        "in 201 steps of the same rows bytes beside the caches grew by 8 a step",
        "a long answer: 66 arrays more in its last third than in the third before, "
        "at most 0 are needed",
    }


def test_memory_is_looked_at_only_where_a_schedule_asks(toy):
    asked = [s for s in HELD.make(brief_for(toy, Weighs, 0)) if s.name == "decoding"]
    plain = [msgspec.structs.replace(s, weigh=None) for s in asked]
    assert judge_batched(toy, Grows, HELD, plain).verdict is Verdict.VACUOUS


def test_a_piece_is_for_models_that_have_positions_for_it(toy):
    made = brief_for(toy, KeepsThePiece, 0)
    assert [s.name for s in KEPT.make(made)] == ["as_left", "resumed", "piece"]
    short = dataclasses.replace(made, longest=256)
    assert [s.name for s in KEPT.make(short)] == ["as_left", "resumed"]
